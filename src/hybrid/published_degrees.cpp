#include <array>

#include "hybrid/baselines.h"

namespace weft {
namespace {

constexpr std::string_view kDgxCloud = "NVIDIA DGX Cloud benchmarking recipes 24.11.1, H100",
                           kBridge = "Megatron-Bridge 26.02, DGX H100",
                           kKorthikanti = "Korthikanti et al. 2022, table 3",
                           kFolding = "Liu et al. 2025 (MoE Parallel Folding), table 1";

constexpr std::array kPublished = {PublishedDegrees{"llama3-8b", 1, 2, 1, 1, 1, kDgxCloud},
                                   PublishedDegrees{"llama3.1-8b", 1, 2, 1, 1, 1, kDgxCloud},
                                   PublishedDegrees{"llama3-70b", 4, 2, 4, 5, 1, kDgxCloud},
                                   PublishedDegrees{"llama3.1-70b", 4, 2, 4, 5, 1, kDgxCloud},
                                   PublishedDegrees{"llama3.1-405b", 8, 2, 8, 8, 1, kBridge},
                                   PublishedDegrees{"llama3.1-405b", 8, 2, 9, 7, 1, kDgxCloud},
                                   PublishedDegrees{"gpt3-175b", 4, 1, 8, 12, 1, kDgxCloud},
                                   PublishedDegrees{"gpt3-175b", 8, 1, 8, 3, 1, kKorthikanti},
                                   PublishedDegrees{"megatron-530b", 8, 1, 35, 3, 1, kKorthikanti},
                                   PublishedDegrees{"nemotron-4-15b", 4, 1, 1, 1, 1, kDgxCloud},
                                   PublishedDegrees{"nemotron-4-340b", 8, 1, 8, 12, 1, kDgxCloud},
                                   PublishedDegrees{"mixtral-8x22b", 2, 1, 8, 7, 8, kFolding},
                                   PublishedDegrees{"qwen3-30b-a3b", 1, 1, 2, 12, 8, kBridge},
                                   PublishedDegrees{"qwen3-235b-a22b", 2, 1, 8, 4, 32, kBridge},
                                   PublishedDegrees{"gpt-oss-120b", 1, 1, 4, 1, 8, kBridge},
                                   PublishedDegrees{"deepseek-v3", 1, 1, 16, 1, 64, "DeepSeek-AI 2024, section 4.2"}};

}  // namespace

std::span<const PublishedDegrees> published_degrees() { return kPublished; }

}  // namespace weft
