#include <nlohmann/json.hpp>

#include "report/strategy.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using Json = nlohmann::json;

Json values(const std::vector<Bytes>& bytes) {
  Json list = Json::array();
  for (Bytes one : bytes) list.push_back(one.value);
  return list;
}

Json to_json(const GroupKind& kind) {
  return {{"axis", kind.degree},
          {"over", kind.over},
          {"size", kind.size},
          {"groups", kind.count},
          {"first", kind.first},
          {"nodes", kind.most_nodes},
          {"slowest_link", name(kind.slowest)},
          {"bytes_per_s_alone", kind.alone.value},
          {"bytes_per_s_all_at_once", kind.together.value}};
}

Json to_json(const OperatorRow& row) {
  Json splits = Json::array(), moves = Json::array();
  for (const OperatorSplit& split : row.splits)
    splits.push_back({{"axis", split.axis}, {"over", split.over}, {"role", split.role}});
  for (const OperatorMove& move : row.moves)
    moves.push_back({{"collective", name_of(move.collective)},
                     {"group", move.group},
                     {"cargo", name_of(move.cargo)},
                     {"bytes_sent", move.bytes.value},
                     {"pass", move.backward ? "backward" : "forward"},
                     {"before", move.before},
                     {"product", move.of}});
  return {{"name", row.name},
          {"kind", row.kind},
          {"splits", std::move(splits)},
          {"inputs", row.inputs},
          {"weights", row.weights},
          {"outputs", row.outputs},
          {"recomputed", row.recomputed},
          {"communication", std::move(moves)}};
}

}  // namespace

Json to_json(const HeldBytes& held) {
  return {{"parameters", held.parameters.value}, {"gradients", held.gradients.value},
          {"optimizer", held.optimizer.value},   {"activations", held.activations.value},
          {"buffers", held.buffers.value},       {"peak_bytes", held.total().value}};
}

Json to_json(const std::vector<StepTraffic>& traffic) {
  Json rows = Json::array();
  for (const StepTraffic& row : traffic)
    rows.push_back({{"cargo", name_of(row.cargo)},
                    {"collective", row.how},
                    {"group", row.group},
                    {"times", row.times},
                    {"bytes_sent", values(row.bytes)}});
  return rows;
}

Json plan_json(const Plan& plan) {
  Json mesh = Json::array();
  for (const MeshAxis& axis : plan.strategy.mesh.axes) mesh.push_back({{"axis", axis.name}, {"size", axis.size}});
  return {{"model", plan.job->words.model},
          {"cluster", plan.job->words.cluster},
          {"strategy", to_yaml(plan.strategy)},
          {"stack", plan.stack().name},
          {"dtype", plan.job->precision.name},
          {"optimizer", name_of(plan.model->options.optimizer)},
          {"parameters", plan.model->parameters},
          {"stored_parameters", plan.stored_parameters()},
          {"frozen_parameters", plan.frozen_parameters()},
          {"vocabulary", plan.model->vocabulary.published > 0 ? Json{{"published", plan.model->vocabulary.published},
                                                                     {"stored", plan.model->vocabulary.stored}}
                                                              : Json()},
          {"devices", plan.cluster().device_count()},
          {"ranks", plan.ranks().size()},
          {"mesh", std::move(mesh)},
          {"seq", plan.model->info.seq > 0 ? Json(plan.model->info.seq) : Json()},
          {"global_batch", plan.batch.global_batch},
          {"micro_batch", plan.batch.micro_batch},
          {"micro_batches", plan.batch.micro_batches},
          {"replicas", plan.batch.replicas},
          {"shares", plan.batch.shares ? Json(*plan.batch.shares) : Json()},
          {"assumptions", plan.assumptions}};
}

Json to_json(const Plan& plan, const CompiledStrategy& compiled, const StrategyReport& report) {
  Json json = plan_json(plan);
  json["groups"] = Json::array();
  for (const GroupKind& kind : report.groups) json["groups"].push_back(to_json(kind));
  json["stages"] = Json::array();
  for (const StageReport& stage : report.stages)
    json["stages"].push_back({{"stage", stage.stage},
                              {"rank", stage.rank},
                              {"chunk", stage.chunk},
                              {"modules", stage.modules},
                              {"parameters", stage.parameters},
                              {"bytes_sent_forward", stage.sent_forward.value},
                              {"bytes_sent_backward", stage.sent_backward.value}});
  json["operators"] = Json::array();
  for (const OperatorSection& section : report.sections) {
    Json rows = Json::array();
    for (const OperatorRow& row : section.rows) rows.push_back(to_json(row));
    json["operators"].push_back({{"name", section.name},
                                 {"layers", section.layers},
                                 {"stages", section.stages},
                                 {"operators", std::move(rows)}});
  }
  json["held"] = Json::array();
  for (const HeldKind& held : report.held) {
    Json cuts = Json::array();
    for (const auto& [axes, share] : held.cuts) cuts.push_back({{"over", axes}, {"share", share}});
    json["held"].push_back({{"kind", name_of(held.kind)},
                            {"types", held.types},
                            {"bytes", values(held.bytes)},
                            {"cuts", std::move(cuts)}});
  }
  json["gradient_sync"] = Json::array();
  for (const SyncReport& sync : report.syncs)
    json["gradient_sync"].push_back({{"cargo", name_of(sync.cargo)},
                                     {"collective", name_of(sync.collective)},
                                     {"group", sync.group},
                                     {"dtype", name_of(sync.dtype)},
                                     {"in_backward", sync.in_backward},
                                     {"collectives", sync.count},
                                     {"bytes_sent", values(sync.bytes)}});
  json["schedule"] = {{"name", compiled.schedule.name},     {"ranks", compiled.schedule.ranks},
                      {"chunks", compiled.schedule.chunks}, {"micro_batches", compiled.schedule.micro_batches},
                      {"bubble_share", report.bubble},      {"in_flight", report.in_flight}};
  json["memory"] = Json::array();
  for (const HeldBytes& held : report.memory) json["memory"].push_back(to_json(held));
  json["traffic"] = to_json(report.traffic);
  return json;
}

}  // namespace weft
