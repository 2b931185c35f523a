// Measured times and memory of single mixture-of-experts layers, against those of the same layer inside a simulated
// step.
//
// A table has gpu, case, forward_ms, backward_ms, max_allocated_bytes and model. A case is
// MODEL_DISPATCHER_tpTepE_TYPE, "mixtral_a2a_tp1ep8_bf16"; `model` gives the shapes, "mixtral proxy: seq4096 mbs1 h4096
// moe_ffn14336 E8 top2; …". The layer runs from its router to the sum over experts; gradients are kept, optimizer
// states are not.
#pragma once

#include "cost/calibration.h"
#include "validate/mapping.h"

namespace weft {

struct LayerPoint {
  int line = 0;
  std::string name;
  double forward_s = 0, backward_s = 0, gib = 0;  // measured
  double predicted_forward_s = 0, predicted_backward_s = 0, predicted_gib = 0;

  double forward_error() const { return predicted_forward_s / forward_s - 1; }
  double backward_error() const { return predicted_backward_s / backward_s - 1; }
  double memory_error() const { return predicted_gib / gib - 1; }
};

struct LayerValidation {
  std::string file;
  std::vector<LayerPoint> points;
  std::vector<SkippedRow> skipped;
  double forward_mape = 0, backward_mape = 0, memory_mape = 0;
};

bool is_table_of_layers(const CsvTable& table);
LayerValidation validate_layers(const CsvTable& table, const std::string& file, const MappingRules& rules,
                                const Calibration* calibration = nullptr);

}  // namespace weft
