// `print_json` of plan_command.h. Apart from it, as the JSON library takes most of the time to compile.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "hyper_parallel/tools/plan_command.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;

Json bytes_json(const PlanReport& report, std::optional<int64_t> elements) {
  return elements ? Json(bytes_of(report, *elements)) : Json();
}

Json side_json(const Distribution& side) {
  Json placements = Json::array();
  for (const DimSplit& split : side.dim_splits()) {
    std::visit(Overloaded{
                   [&](const FlatSplit&) { placements.push_back(to_string(split)); },
                   [&](const auto& placement) { placements.push_back(to_string(Placement(placement))); },
               },
               split);
  }
  return {
      {"mesh_shape", side.mesh().shape()}, {"mesh_names", side.mesh().names()}, {"placements", std::move(placements)}};
}

Json steps_json(const Plan& plan) {
  Json steps = Json::array();
  for (const Step& step : plan.steps) {
    steps.push_back({{"action", action_text(step)},
                     {"local", is_local(step)},
                     {"from", short_text(step.from)},
                     {"to", short_text(step.to)}});
  }
  return steps;
}

Json totals_json(const PlanReport& report) {
  const auto counted = [&](int64_t MessageTraffic::* count) {
    return report.messages ? std::optional((*report.messages).*count) : std::nullopt;
  };
  const auto messages = counted(&MessageTraffic::messages);
  return {{"received_bytes", bytes_json(report, report.mesh.total_received)},
          {"max_received_bytes", bytes_json(report, report.mesh.max_received)},
          {"lower_bound_bytes", bytes_json(report, report.mesh.lower_bound)},
          {"rounds", report.mesh.rounds},
          {"max_messages", report.max_messages},
          {"messages", messages ? Json(*messages) : Json()},
          {"max_sent_bytes", bytes_json(report, counted(&MessageTraffic::max_sent))},
          {"max_peak_extra_bytes", bytes_json(report, counted(&MessageTraffic::max_peak_extra))}};
}

Json view_json(const StridedView& view) {
  return {{"offset", view.offset}, {"sizes", view.sizes.to_vector()}, {"strides", view.strides.to_vector()}};
}

Json transfers_json(const std::vector<Transfer>& transfers) {
  Json list = Json::array();
  for (const Transfer& transfer : transfers) {
    Json pieces = Json::array();
    for (const StridedView& piece : transfer.pieces) pieces.push_back(view_json(piece));
    list.push_back({{"peer", transfer.peer}, {"elements", transfer.numel}, {"pieces", std::move(pieces)}});
  }
  return list;
}

Json rank_step_json(const RankStep& step) {
  Json keeps = Json::array();
  for (const LocalCopy& copy : step.copies) {
    keeps.push_back({{"elements", copy.from.numel()}, {"from", view_json(copy.from)}, {"to", view_json(copy.to)}});
  }
  Json combine;
  if (step.combine) {
    combine = {
        {"op", to_string(step.combine->op)}, {"sources", step.combine->sources}, {"divisor", step.combine->divisor}};
  }
  return {{"sends", transfers_json(step.sends)},
          {"receives", transfers_json(step.receives)},
          {"keeps", std::move(keeps)},
          {"combine", std::move(combine)}};
}

Json rank_json(const PlanReport& report, const RankReport& rank) {
  Json steps = Json::array();
  for (const RankStep& step : rank.plan.steps) steps.push_back(rank_step_json(step));
  return {{"rank", rank.rank},
          {"coordinate", rank.coordinate.to_vector()},
          {"source_shape", rank.source_shape.to_vector()},
          {"target_shape", rank.plan.target_shape.to_vector()},
          {"steps", std::move(steps)},
          {"sent_bytes", bytes_json(report, rank.traffic.sent)},
          {"received_bytes", bytes_json(report, rank.traffic.received)},
          {"lower_bound_bytes", bytes_json(report, rank.lower_bound)},
          {"messages", rank.traffic.messages},
          {"peak_extra_bytes", bytes_json(report, rank.traffic.peak_extra)}};
}

}  // namespace

void print_json(const PlanReport& report, std::ostream& out) {
  Json document = {{"shape", report.plan.source.shape().to_vector()},
                   {"dtype", report.dtype.name},
                   {"elements", report.elements},
                   {"bytes", bytes_json(report, report.elements)},
                   {"source", side_json(report.plan.source)},
                   {"target", side_json(report.plan.target)},
                   {"steps", steps_json(report.plan)},
                   {"totals", totals_json(report)}};
  if (report.rank) document["rank"] = rank_json(report, *report.rank);
  out << document.dump(2) << "\n";
}

}  // namespace hyper_parallel
