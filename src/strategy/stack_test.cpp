#include "strategy/stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::HasSubstr;

SoftwareStack stack(std::string_view name) { return find_stack(name).value(); }

TEST(Stack, KnowsTheStacksBehindPublishedMeasurements) {
  for (const char* name : {"megatron-lm",      "megatron-deepspeed",
                           "megatron-2020",    "megatron-2021",
                           "nemo-24.09",       "llm-foundry",
                           "megatron-lm-b200", "megatron-lm-tp-overlap",
                           "megatron-fsdp",    "megatron-2022",
                           "deepspeed-zero3",  "torchtitan-async-tp",
                           "maxtext",          "pax",
                           "oneflow",          "dle-bert",
                           "pytorch-ddp",      "pytorch-fsdp",
                           "pytorch-compile",  "pytorch-graphs"})
    EXPECT_TRUE(find_stack(name).ok()) << name;
}
TEST(Stack, SaysBytesPerParameter) {
  EXPECT_EQ(stack("megatron-deepspeed").bytes_per_parameter(), 16);  // 2 + 2 + 12
  EXPECT_EQ(stack("nemo-24.09").bytes_per_parameter(), 16);          // 2 + 2 + 12
  EXPECT_EQ(stack("megatron-lm-b200").bytes_per_parameter(), 18);    // 2 + 4 + 12
  EXPECT_EQ(stack("llm-foundry").bytes_per_parameter(), 16);         // 4 + 4 + 8
}
// DeepSpeed trains in bf16 with another optimizer than in fp16, which keeps fp32 gradients and no buckets.
TEST(Stack, NamesWhatDescribesItsRunsInBf16) {
  EXPECT_EQ(stack("megatron-deepspeed").in_bf16, "megatron-deepspeed-bf16");
  EXPECT_EQ(stack("megatron-deepspeed-bf16").in_bf16, "");
  EXPECT_EQ(stack("megatron-2021").in_bf16, "");  // of like stacks it is not taken over
  EXPECT_EQ(stack("megatron-deepspeed-bf16").bytes_per_parameter(), 18);
}
TEST(Stack, KeepsNoMoreThanItsBuckets) {
  const SoftwareStack deepspeed = stack("megatron-deepspeed");
  EXPECT_EQ(deepspeed.kept_for(500'000'000).value, 2'000'000'000);
  EXPECT_EQ(deepspeed.kept_for(5'000'000'000).value, 4'000'000'000);
  EXPECT_EQ(stack("megatron-deepspeed-bf16").kept_for(5'000'000'000).value, 20'000'000'000);
  EXPECT_EQ(stack("megatron-lm").kept_for(5'000'000'000).value, 0);
}
TEST(Stack, ReducesGradientsInItsOwnType) {
  EXPECT_EQ(stack("nemo-24.09").gradient_communication_dtype.value, DType::BF16);
  EXPECT_EQ(stack("megatron-lm-b200").gradient_communication_dtype.value, DType::F32);
  EXPECT_EQ(stack("llm-foundry").gradient_communication_dtype.value, DType::F32);
}
TEST(Stack, PadsTheVocabularyToItsMultipleTimesTp) {
  EXPECT_EQ(padded_vocabulary(stack("megatron-lm"), 50257, 1), 50304);   // 393·128
  EXPECT_EQ(padded_vocabulary(stack("megatron-lm"), 50257, 8), 51200);   // 50·1024
  EXPECT_EQ(padded_vocabulary(stack("megatron-lm"), 50257, 32), 53248);  // 13·4096
  EXPECT_EQ(padded_vocabulary(stack("pytorch-fsdp"), 50257, 8), 50257);
}
TEST(Stack, HasASourceForEveryValue) {
  for (const std::string& name : stack_names()) {
    const SoftwareStack known = stack(name);
    for (const Knob& knob : stack_knobs())
      std::visit(
          [&](auto field) {
            const std::string& source = (known.*field).source;
            EXPECT_TRUE(source.starts_with("stated: ") || source.starts_with("assumed: ") ||
                        source.starts_with("fitted by hand to ") || source.starts_with("weft calibrate: "))
                << name << " " << knob.name << ": " << source;
          },
          knob.field);
  }
}
TEST(Stack, SuggestsTheNearestName) {
  EXPECT_THAT(find_stack("megatron-ln").error().message,
              HasSubstr("stack 'megatron-ln': unknown; did you mean megatron-lm"));
  EXPECT_THAT(find_stack("zzz").error().message, HasSubstr("known are pytorch-ddp, "));
}
TEST(Stack, NamesFileAndLineOfWhatIsWrong) {
  const auto message = [](std::string_view text) { return parse_stacks(text, "s.yaml").error().message; };
  EXPECT_EQ(message("stacks:\n  mine:\n    like: megatron"),
            "s.yaml:3: stack 'mine': like 'megatron', which is not above it");
  EXPECT_EQ(message("stacks:\n  mine:\n    nvls: true"),
            "s.yaml:2: stack 'mine': gradient_bucket missing; give it, or a stack it is like");
  EXPECT_THAT(message("stacks:\n  mine:\n    nvsl: true"),
              HasSubstr("s.yaml:3: stack 'mine': unknown key 'nvsl'; did you mean nvls?"));
}
TEST(Stack, PrintsEveryKnob) {
  const std::string text = print(stack("megatron-lm"));
  EXPECT_THAT(text, HasSubstr("megatron-lm (Megatron-LM core, bf16), 18 bytes per parameter\n"));
  EXPECT_THAT(text, HasSubstr("  vocabulary_multiple          128         stated: "));
}

TEST(Stack, KnobsOfAStackAreSetAfterAColon) {
  const SoftwareStack usual = find_stack("megatron-lm").value();
  const SoftwareStack other = find_stack("megatron-lm:gradient_overlap=false,gradient_bucket=75MB").value();
  EXPECT_EQ(other.name, "megatron-lm:gradient_overlap=false,gradient_bucket=75MB");
  EXPECT_FALSE(other.gradient_overlap.value);
  EXPECT_EQ(other.gradient_bucket.value.value, 75'000'000);
  EXPECT_EQ(other.prefetch_forward, usual.prefetch_forward);  // the rest is as it was
  EXPECT_EQ(
      find_stack("megatron-lm:overlap=true").error().message.find("stack 'megatron-lm:overlap=true': unknown knob"),
      0u);
  EXPECT_FALSE(find_stack("megatron-lm:").ok());
  EXPECT_FALSE(find_stack("megatron-lm:gradient_overlap=maybe").ok());
  EXPECT_FALSE(find_stack("megatron-lm:gradient_overlap=true\n    nvls: false").ok());
  EXPECT_FALSE(find_stack("no-such-stack:nvls=false").ok());
}

}  // namespace
}  // namespace weft
