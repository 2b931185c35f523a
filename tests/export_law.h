// The law of exports: what is written for a trainer reads back as the same strategy of the same model, and is predicted to
// take the same time to the picosecond.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cost/analytic.h"
#include "export/export.h"
#include "forecast/forecast.h"

namespace weft {

inline Picoseconds step_of(const Plan& plan) {
  return forecast(plan, AnalyticCost(plan.stack(), plan.job->tuning)).value().step;
}

// No comment carries the answer: lines that are comments are struck out, before and after the text that a shell reads.
inline std::string without_comments(std::string_view text) {
  std::string bare;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] != '#') bare += std::string(line) + "\n";
    at = end + 1;
  }
  return bare;
}

// What a file cannot have is taken from the plan's own words: the cluster, and the model and sequence of a ds_config.
inline void expect_reads_back(Target target, const Plan& plan) {
  const auto text = export_plan(target, plan);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto read = import_run(target, without_comments(*text), "exported");
  ASSERT_TRUE(read.ok()) << read.error().message << *text;
  PlanRequest back = read->request;
  back.cluster = plan.job->words.cluster;
  EXPECT_EQ(back.model.empty(), target == Target::DeepSpeed);
  if (back.model.empty()) back.model = plan.job->words.model;
  if (!back.seq) back.seq = plan.model->info.seq;
  const auto again = make_plan(back);
  ASSERT_TRUE(again.ok()) << again.error().message << *text;
  EXPECT_EQ(again->parallelism, plan.parallelism) << again->name << *text;
  EXPECT_EQ(again->strategy, plan.strategy);
  EXPECT_EQ(again->batch, plan.batch);
  EXPECT_EQ(step_of(*again), step_of(plan));
}

}  // namespace weft
