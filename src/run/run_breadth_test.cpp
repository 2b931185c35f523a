// Networks of every kind under strategies of every kind, planned from words as `weft run` does and run for real: they
// train as one device does.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "run_ranks.h"

namespace weft {
namespace {

struct Words {
  std::string model, strategy;
  std::int64_t ranks = 2, global_batch = 4;
  std::optional<std::int64_t> seq = 16;
  std::string stack = {};
};

Result<Bundle> bundle_of(const Words& words, const std::string& dtype = "fp32", Numbers numbers = Numbers::Float64) {
  WEFT_TRY(const Plan plan, make_plan({.model = words.model,
                                       .cluster = "dgx-a100:1",
                                       .strategy = words.strategy,
                                       .global_batch = words.global_batch,
                                       .seq = words.seq,
                                       .dtype = dtype,
                                       .device_count = words.ranks,
                                       .stack = words.stack}));
  WEFT_TRY(CompiledStrategy compiled, compile_plan(plan));
  Bundle bundle{.model = words.model,
                .strategy = words.strategy,
                .numbers = numbers,
                .graph = plan.graph(),
                .program = numbered_by_rank(std::move(compiled.program)),
                .schedule = std::move(compiled.schedule)};
  if (compiled.last && plan.model->last)
    bundle.last = Bundle::Last{plan.model->last->graph, numbered_by_rank(std::move(*compiled.last))};
  return bundle;
}

// By way of its text, as a rank reads it.
std::string problem_of(const Words& words, const std::string& dtype = "fp32", Numbers numbers = Numbers::Float64) {
  const Result<Bundle> bundle = bundle_of(words, dtype, numbers);
  if (!bundle.ok()) return bundle.error().message;
  const Result<Bundle> read = parse_bundle(print(*bundle), "run.weft");
  if (!read.ok()) return read.error().message;
  if (!(*read == *bundle)) return "what is read is not what was written";
  return run_differs_from_unsharded(*read);
}

const char* const kGpt = "gpt2-124m:layers=4,hidden=32,heads=4,vocab=64,dropout=0.1";
const char* const kLlama = "llama3-8b:layers=4,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=64";
const char* const kMoe =
    "mixtral-8x7b:layers=2,hidden=32,heads=4,kv_heads=2,ffn=32,vocab=64,experts=4,capacity_factor=2";

TEST(RunBreadth, LanguageModels) {
  for (const Words& words : std::vector<Words>{
           {kGpt, "dp=2"},
           {kGpt, "tp=2,sp=0"},
           {kGpt, "tp=2"},
           {kGpt, "tp=4", 4},
           {kGpt, "cp=2"},
           {kGpt, "cp=2,cp_mode=ring"},
           {kGpt, "cp=2,cp_mode=a2a"},
           {kLlama, "tp=2,cp=2", 4},
           {kLlama, "cp=2,cp_mode=ring,dp=2", 4},
           {kLlama, "dp=4,zero=1", 4},
           {kLlama, "dp=4,zero=2", 4, 8},
           {kLlama, "dp=4,zero=3", 4, 8},
           {kLlama, "fsdp=2,replicate=2", 4},
           {kGpt, "dp=2,zero=3,recompute=full"},
           {kLlama, "tp=2,recompute=selective"},
           {kGpt, "tp=2,recompute=op"},
           {kLlama, "dp=2,zero=1,offload=optimizer"},
           {kGpt, "dp=2,offload=activations"},
           {kLlama, "dp=2,tp=2,pp=2,zero=1", 8, 8},
           {"bert-base:layers=2,hidden=32,heads=4,vocab=64", "tp=2,dp=2", 4},
           {"t5-small:layers=2,hidden=32,heads=4,vocab=64", "tp=2,dp=2", 4},
           {"deepseek-v3:layers=2,hidden=32,heads=4,vocab=64,experts=4,top_k=2,expert_groups=1,top_groups=1",
            "tp=2,dp=2", 4},
           {kMoe, "dp=2,ep=2"},
           {kMoe, "dp=4,ep=4", 4},
           {kMoe, "tp=2,dp=2,ep=2", 4},
           {kMoe, "tp=2,etp=1,ep=2,dp=2", 4},
       })
    EXPECT_EQ(problem_of(words), "") << words.model << " " << words.strategy;
}

TEST(RunBreadth, PipelineSchedules) {
  for (const Words& words : std::vector<Words>{
           {kGpt, "pp=2,schedule=gpipe", 2, 4},
           {kGpt, "pp=2,schedule=1f1b", 2, 4},
           {kGpt, "pp=4,schedule=1f1b", 4, 8},
           {kGpt, "pp=2,vpp=2,schedule=interleaved", 2, 4},
           {kLlama, "pp=2,schedule=zb-h1", 2, 4},
           {kLlama, "pp=2,schedule=zb-h2", 2, 4},
           {kLlama, "pp=2,vpp=2,schedule=zb-v", 2, 4},
           {kLlama, "pp=2,vpp=2,schedule=dualpipe", 2, 8},
           {kLlama, "pp=2,vpp=2,schedule=dualpipe-v", 2, 8},
           {kLlama, "pp=2,tp=2,schedule=zb-h1", 4, 4},
           {kLlama, "pp=2,dp=2,zero=2", 4, 8},
           {kMoe, "pp=2,dp=2,ep=2", 4, 8},
       })
    EXPECT_EQ(problem_of(words), "") << words.model << " " << words.strategy;
}

TEST(RunBreadth, OtherNetworks) {
  for (const Words& words : std::vector<Words>{
           {"lenet", "dp=2", 2, 4, {}},
           {"lenet", "dp=1,h=2", 2, 4, {}},
           {"rnnlm:hidden=16,vocab=32", "dp=2", 2, 4, 4},
           {"nmt:layers=2,hidden=16,vocab=32", "dp=2", 2, 4, 4},
           {"dlrm:rows=64,tables=4", "dp=2,tables=1", 2, 4, {}},
           {"vit-b:layers=2,hidden=32,heads=4,ffn=64", "tp=2,dp=2,sp=0", 4, 4, {}},
       })
    EXPECT_EQ(problem_of(words), "") << words.model << " " << words.strategy;
}

// fp32 and bf16 have bounds of their own.
TEST(RunBreadth, NarrowTypes) {
  for (const char* strategy : {"tp=2,dp=2", "dp=4,zero=3"}) {
    EXPECT_EQ(problem_of({kGpt, strategy, 4}, "fp32", Numbers::AsStored), "") << strategy;
    EXPECT_EQ(problem_of({kLlama, strategy, 4}, "bf16", Numbers::AsStored), "") << strategy;
  }
}

// One device that begins with other weights: the loss, gradients and weights are others, and the check says so.
TEST(RunBreadth, ACheckTellsWhatDiffers) {
  const Bundle bundle = bundle_of({kGpt, "dp=1", 1}).value();
  Bundle other = bundle;
  other.seed = 2;
  const runtime::Rendezvous rendezvous = runtime::Rendezvous::in_process();
  const auto executor = runtime::Executor::make(bundle, 0, rendezvous, runtime::synthetic_values(bundle)).value();
  runtime::Unsharded one_device(other, runtime::synthetic_values(other));
  ASSERT_TRUE(executor->step({}).ok());
  const auto compared = runtime::check_step(*executor, &one_device, bundle, 0, {}).value();
  int differing = 0;
  for (const runtime::Comparison& each : compared) differing += each.ok() ? 0 : 1;
  EXPECT_GT(differing, static_cast<int>(compared.size()) / 2);
}

}  // namespace
}  // namespace weft
