#include "export/launch_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  const auto read = read_launch_command(text, "run.sh");
  if (!read.ok()) return {read.error().message};
  for (const LaunchWord& word : read->arguments) found.push_back(word.unset.empty() ? word.text : word.unset);
  return found;
}
using testing::ElementsAre;

TEST(LaunchWords, BareArgumentsMayStandOnManyLines) {
  EXPECT_THAT(words("--num-layers 96\n--bf16  # half\n--x 'a b'\n"),
              ElementsAre("--num-layers", "96", "--bf16", "--x", "a b"));
}

TEST(LaunchWords, ArraysAndVariablesOfTheTextAreExpanded) {
  EXPECT_THAT(words("LAYERS=96\nGPT=(\n  --num-layers $LAYERS # deep\n  --swiglu\n)\nGPT+=(--bf16)\n"
                    "torchrun --nnodes 2 pretrain_gpt.py ${GPT[@]} \"${GPT[@]}\" --seq ${SEQ:-2048}\n"),
              ElementsAre("--num-layers", "96", "--swiglu", "--bf16", "--num-layers", "96", "--swiglu", "--bf16",
                          "--seq", "2048"));
}

TEST(LaunchWords, AStringOfArgumentsIsCutWhereItIsUsedUnquoted) {
  EXPECT_THAT(words("A=\"--x 1 \\\n  --y 2\"\npython train.py $A \"$A\""),
              ElementsAre("--x", "1", "--y", "2", "--x 1    --y 2"));
}

TEST(LaunchWords, WhatTheTextDoesNotSetIsMarked) {
  EXPECT_THAT(words("python train.py --data $DATA --n $(nproc)"), ElementsAre("--data", "$DATA", "--n", "$(nproc)"));
}

TEST(LaunchWords, LinesAreThoseOfTheText) {
  const auto read = read_launch_command("A=(\n --x 1\n --y 2\n)\ntorchrun t.py ${A[@]} \\\n --z 3\n", "f").value();
  std::vector<int> lines;
  for (const LaunchWord& word : read.arguments) lines.push_back(word.line);
  EXPECT_THAT(lines, ElementsAre(2, 2, 3, 3, 6, 6));
  EXPECT_EQ(read.script, "t.py");
}

TEST(LaunchWords, WhatIsNotClosedIsNamedByItsLine) {
  EXPECT_THAT(words("\n--x 'abc"), ElementsAre("run.sh:2: a quote ' is not closed"));
  EXPECT_THAT(words("A=(--x"), ElementsAre("run.sh:1: A=( is not closed"));
  EXPECT_THAT(words("--x $(a"), ElementsAre("run.sh:1: $( is not closed"));
}

TEST(LaunchWords, DoublingVariablesEndInAnError) {
  std::string text = "A=(--x 1)\n";
  for (int i = 0; i < 60; ++i) text += "A+=(${A[@]})\n";
  text += "t.py ${A[@]}\n";
  EXPECT_THAT(words(text)[0], testing::HasSubstr("too m"));
}

TEST(LaunchWords, AQuotedWordReadsBack) {
  for (const char* word : {"a", "a b", "it's", "$x", "([0]*2+[1])*8", "", "Ett|(t|)*2,tL", "a\"b", "\\"})
    EXPECT_THAT(words("t.py " + shell_quoted(word)), ElementsAre(word));
}

}  // namespace
}  // namespace weft
