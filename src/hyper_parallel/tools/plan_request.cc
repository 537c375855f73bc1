#include "hyper_parallel/tools/plan_request.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

// Room for the units of the largest mesh, and a limit for a file that is none.
constexpr size_t kMaxPlacementBytes = size_t{1} << 28;
constexpr int64_t kMaxListedRanks = 1 << 24;

constexpr std::array kElementTypes = {
    ElementType{"float32", 4},   ElementType{"float64", 8},       ElementType{"float16", 2},
    ElementType{"bfloat16", 2},  ElementType{"float8_e4m3fn", 1}, ElementType{"float8_e5m2", 1},
    ElementType{"complex64", 8}, ElementType{"complex128", 16},   ElementType{"int8", 1},
    ElementType{"int16", 2},     ElementType{"int32", 4},         ElementType{"int64", 8},
    ElementType{"uint8", 1},     ElementType{"uint16", 2},        ElementType{"uint32", 4},
    ElementType{"uint64", 8},    ElementType{"bool", 1},
};

/// `read()`, with the option's name in front of what it throws.
template <typename Read>
auto reading(std::string_view option, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), str_cat(option, ": ", error.what()));
  }
}

/// The integers of "6,4,8" or "(6, 4, 8)"; none of blank text.
std::vector<int64_t> parse_integers(std::string_view text) {
  Scanner in(text);
  const bool bracketed = in.accept("(");
  const auto closes = [&] { return bracketed ? in.accept(")") : in.at_end(); };
  std::vector<int64_t> values;
  while (!closes()) {
    values.push_back(in.integer());
    if (closes()) break;
    in.expect(",");
  }
  in.finish();
  return values;
}

/// The ranks of "0,2,1,3" or "4-7,0-3".
std::vector<int64_t> parse_ranks(std::string_view text) {
  Scanner in(text);
  std::vector<int64_t> ranks;
  while (!in.at_end()) {
    const int64_t first = in.integer();
    const int64_t last = in.accept("-") ? in.integer() : first;
    HP_CHECK(first >= 0, kInvalidArgument, "rank ", first, " must not be negative");
    HP_CHECK(first <= last, kInvalidArgument, "the range ", first, "-", last, " must not run backwards");
    HP_CHECK(last - first < kMaxListedRanks - static_cast<int64_t>(ranks.size()), kInvalidArgument, "the range ", first,
             "-", last, " is too long: a mesh has at most ", kMaxListedRanks, " ranks");
    for (int64_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
    if (!in.at_end()) in.expect(",");
  }
  return ranks;
}

/// The names between the commas, without the white space around them.
std::vector<std::string> parse_names(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view name = text.substr(begin, end - begin);
    name.remove_prefix(std::min(name.find_first_not_of(kSpace), name.size()));
    name = name.substr(0, name.find_last_not_of(kSpace) + 1);
    names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

std::string read_all(std::istream& in, std::string_view name) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    text.append(block.data(), static_cast<size_t>(in.gcount()));
    HP_CHECK(text.size() <= kMaxPlacementBytes, kInvalidArgument, name, " is larger than ", kMaxPlacementBytes,
             " bytes");
  }
  HP_CHECK(!in.bad(), kInvalidArgument, "cannot read ", name);
  return text;
}

std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  HP_CHECK(file.is_open(), kInvalidArgument, "cannot open '", path, "': ", std::strerror(errno));
  return read_all(file, str_cat("'", path, "'"));
}

std::vector<Placement> read_placements(const std::string& text, std::istream& in) {
  if (text == "-") return parse_placements(read_all(in, "standard input"));
  if (text.starts_with("@")) return parse_placements(read_file(text.substr(1)));
  return parse_placements(text);
}

ElementType parse_element_type(std::string_view name) {
  const auto found = std::ranges::find(kElementTypes, name, &ElementType::name);
  if (found != kElementTypes.end()) return *found;
  std::vector<std::string_view> known;
  for (const ElementType& type : kElementTypes) known.push_back(type.name);
  raise(ErrorCode::kInvalidArgument, "'", name, "' is not a dtype; dtypes are ", join(known, ", "));
}

int64_t parse_rank(std::string_view text) {
  Scanner in(text);
  const int64_t rank = in.integer();
  in.finish();
  return rank;
}

DeviceMesh named_mesh(std::string_view option, const DeviceMesh& mesh, const std::optional<std::string>& names) {
  if (!names) return mesh;
  return reading(option, [&] { return DeviceMesh(mesh.shape(), parse_names(*names), mesh.ranks()); });
}

DeviceMesh read_mesh(const PlanOptions& options) {
  DeviceMesh mesh = reading("--mesh", [&] { return DeviceMesh(parse_integers(options.mesh)); });
  if (options.ranks)
    mesh = reading("--ranks", [&] { return DeviceMesh(mesh.shape(), {}, parse_ranks(*options.ranks)); });
  return named_mesh("--names", mesh, options.names);
}

DeviceMesh read_target_mesh(const PlanOptions& options, DeviceMesh mesh) {
  if (options.to_mesh) {
    mesh = reading("--to-mesh", [&] { return DeviceMesh(parse_integers(*options.to_mesh), {}, mesh.ranks()); });
  }
  return named_mesh("--to-names", mesh, options.to_names);
}

Layout read_layout(std::string_view option, const DeviceMesh& mesh, const std::string& text, const Dims& shape,
                   std::istream& in) {
  return reading(option, [&] {
    Layout layout(mesh, read_placements(text, in));
    check_shape(layout, shape);
    return layout;
  });
}

}  // namespace

PlanRequest read_plan_request(const PlanOptions& options, std::istream& in) {
  HP_CHECK(options.from != "-" || options.to != "-", kInvalidArgument,
           "--from and --to cannot both be read from standard input");
  const Dims shape = reading("--shape", [&] {
    const Dims dims = parse_integers(options.shape);
    check_global_shape(dims);
    return dims;
  });
  const DeviceMesh mesh = read_mesh(options);
  const DeviceMesh target_mesh = read_target_mesh(options, mesh);
  PlanRequest request{shape, read_layout("--from", mesh, options.from, shape, in),
                      read_layout("--to", target_mesh, options.to, shape, in),
                      reading("--dtype", [&] { return parse_element_type(options.dtype); }), std::nullopt};
  if (options.rank) {
    request.rank = reading("--rank", [&] { return parse_rank(*options.rank); });
    HP_CHECK(mesh.contains(*request.rank), kInvalidArgument, "--rank: the mesh of ", mesh.size(),
             " ranks does not hold ", *request.rank);
  }
  return request;
}

}  // namespace hyper_parallel
