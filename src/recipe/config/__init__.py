"""The settings of every stage, one module a stage; defaults are the paper's where it states them."""

from recipe.config.base import (
    Config,
    Fraction,
    Positive,
    Settings,
    changed_values,
    check_table,
    documented_fields,
    load_config,
    parse_config,
    read_config,
)
from recipe.config.corpus import AdaptationConfig, CaptionConfig, CorpusConfig, EncoderConfig, MiningConfig
from recipe.config.models import FrameConfig, JudgeConfig, ModelConfig, PhiConfig, SamplingConfig
from recipe.config.planning import PlanConfig
from recipe.config.reward import FrameQuestionsConfig, GroundedConfig, RewardConfig
from recipe.config.training import (
    BaseModelConfig,
    BestOfNConfig,
    FineTuningSettings,
    GRPOConfig,
    LoraSettings,
    Metrics,
    RewardTrainingSettings,
    SFTConfig,
    TrainingSettings,
    ValidationSettings,
    VllmSettings,
)

__all__ = [
    "AdaptationConfig",
    "BaseModelConfig",
    "BestOfNConfig",
    "CaptionConfig",
    "Config",
    "CorpusConfig",
    "EncoderConfig",
    "FineTuningSettings",
    "Fraction",
    "FrameConfig",
    "FrameQuestionsConfig",
    "GRPOConfig",
    "GroundedConfig",
    "JudgeConfig",
    "LoraSettings",
    "Metrics",
    "MiningConfig",
    "ModelConfig",
    "PhiConfig",
    "PlanConfig",
    "Positive",
    "RewardConfig",
    "RewardTrainingSettings",
    "SFTConfig",
    "SamplingConfig",
    "Settings",
    "TrainingSettings",
    "ValidationSettings",
    "VllmSettings",
    "changed_values",
    "check_table",
    "documented_fields",
    "load_config",
    "parse_config",
    "read_config",
]
