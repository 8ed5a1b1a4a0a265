"""The Video configuration: SFT and GRPO of a policy that reads the frames before the cut (paper, section 3.1).

prompts   an example and its clip become token ids and patches, once for all completions of a prompt
sources   which examples have a video, and who shows it
tower     what the frozen visual encoder makes of a clip, computed once
inputs    ids, mask and clips become what the decoder reads: embeddings and positions in time, height and width
batches   examples become ids, labels and clips (SFT)
rates     the merger at a rate of its own
sft, grpo TRL's trainers with the clips in every forward pass
"""
