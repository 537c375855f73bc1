#pragma once

// `hyper-parallel plan`: explains a redistribution without running it.
//
// Shows the steps, what they move against the least that must move, and what they take in memory; for one rank also
// each message and where its elements lie. Meshes of 100 000 ranks are fine: only where the messages themselves are too
// many to look at, what would take looking is left out, and the output says so.

#include <istream>
#include <ostream>

#include "hyper_parallel/tools/plan_report.h"

namespace hyper_parallel {

enum class PlanFormat { kText, kJson };

/// Reads the options (`in` is standard input), plans, and prints to `out`; prints nothing if it throws.
/// Throws the library's errors as `read_plan_request` and `make_plan_report`.
void explain_plan(const PlanOptions& options, PlanFormat format, std::istream& in, std::ostream& out);

/// The report for people: the plan, a table of totals and, if it has one, the rank's part.
void print_text(const PlanReport& report, std::ostream& out);

/// The report as one JSON object: "shape", "dtype", "elements", "bytes", "source" and "target" (each "mesh_shape",
/// "mesh_names", "placements"), "steps" (each "action", "local", "from", "to"), "totals" and, if it has one, "rank".
/// Totals are "received_bytes", "max_received_bytes", "lower_bound_bytes", "rounds", "max_messages" and, null where the
/// messages are too many to look at, "messages", "max_sent_bytes", "max_peak_extra_bytes". The rank's steps list
/// "sends", "receives", "keeps" and "combine"; a piece is "offset", "sizes" and "strides" in elements of the local
/// buffer.
void print_json(const PlanReport& report, std::ostream& out);

}  // namespace hyper_parallel
