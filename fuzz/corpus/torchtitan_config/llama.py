"""Two by four."""
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.llama3.config_registry import llama3_8b
def plan():
    c = llama3_8b()
    p, t = c.parallelism, c.training
    p.tensor_parallel_degree, p.data_parallel_shard_degree = 2, 4
    t.num_tokens_per_microbatch_per_dp_rank, t.max_context_length = 8192, 8192
    t.num_tokens_per_train_step = 8192 * 8 * 4
    c.activation_checkpoint = FullAC.Config()
    return c
