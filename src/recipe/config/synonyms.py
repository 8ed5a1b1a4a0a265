"""What the field calls the settings that have another name here, so that an unknown key can name the known one."""

from collections.abc import Iterable
from difflib import get_close_matches

SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "n group_size samples count k num_generations num_samples samples_per_prompt n_samples rollout_n best_of "
        "num_return_sequences plans_per_prompt",
        "rounds iterations num_rounds num_iterations ppo_epochs",
        "steps max_steps num_steps total_steps total_training_steps train_steps",
        "epochs num_epochs num_train_epochs total_epochs n_epochs",
        "batch_size prompts_per_step prompts_per_round train_batch_size per_device_train_batch_size "
        "generation_batch_size rollout_batch_size prompts",
        "micro_batch micro_batch_size ppo_micro_batch_size mini_batch_size",
        "learning_rate lr peak_lr actor_lr",
        "warmup warmup_ratio lr_warmup_ratio",
        "max_tokens max_completion_tokens max_new_tokens max_completion_length max_response_length response_length",
        "context max_length max_seq_length max_seq_len max_model_len context_length longest",
        "beta kl_coef kl_loss_coef init_kl_coef kl_weight",
        "clip clip_range clip_ratio cliprange epsilon eps_clip",
        "loss loss_type objective",
        "model model_name model_id model_path model_name_or_path base_model checkpoint",
        "examples dataset data data_path dataset_name train_file train_files",
        "output output_dir out save_dir out_dir",
        "verifier reward_function reward_func reward_type reward_model",
        "rank r lora_r lora_rank",
        "alpha lora_alpha",
        "dropout lora_dropout",
        "save_every save_steps save_freq save_interval checkpoint_every",
        "every eval_steps eval_every test_freq validate_every",
        "patience early_stopping_patience early_stopping",
        "metrics report_to logger loggers",
        "endpoint base_url api_base url",
        "key_variable api_key_env api_key_variable",
        "concurrency max_concurrency num_workers workers parallel",
        "tries retries max_retries",
        "timeout request_timeout timeout_seconds",
        "seed random_seed random_state",
        "temperature temp",
    )
)
"""Names of one thing, of TRL, verl, OpenRLHF, PEFT, the OpenAI API and here; one line a thing."""


def nearest_key(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known key that an unknown one means: of nearly its spelling, a synonym, or else near enough.

    >>> nearest_key("group_size", ["rounds", "n"]), nearest_key("rouds", ["rounds", "n"]), nearest_key("x", ["rounds"])
    ('n', 'rounds', None)
    """
    # Reversed, so that of keys with one last name the first counts.
    keys = {key.rpartition(".")[2]: key for key in reversed([*known])}
    if typo := get_close_matches(name, keys, n=1, cutoff=0.85):
        return keys[typo[0]]
    plain = name.lower().replace("-", "_")
    meant = get_close_matches(plain, sorted(frozenset().union(*SYNONYMS)), n=1, cutoff=0.9)
    same = [keys[key] for names in SYNONYMS if meant and meant[0] in names for key in keys if key in names]
    near = same or [keys[key] for key in get_close_matches(name, keys, n=1, cutoff=cutoff)]
    return near[0] if near else None
