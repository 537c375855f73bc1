#include "hyper_parallel/tools/holders_picture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/geometry/region.h"
#include "hyper_parallel/tools/box_order.h"
#include "hyper_parallel/tools/text_table.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kMaxColumns = 64;
constexpr int64_t kMaxLines = 16;
constexpr std::string_view kSymbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr char kSeveral = '+';

/// Consecutive pieces of an axis: piece i is [cuts[i], cuts[i + 1]).
class Pieces {
 public:
  explicit Pieces(std::vector<int64_t> cuts) : cuts_(std::move(cuts)) {}

  int64_t count() const { return std::ssize(cuts_) - 1; }
  Interval operator[](int64_t i) const { return {cuts_[static_cast<size_t>(i)], cuts_[static_cast<size_t>(i) + 1]}; }
  /// The pieces that a run, which is not empty, meets.
  Interval met_by(Interval run) const {
    return {std::ranges::upper_bound(cuts_, run.begin) - cuts_.begin() - 1,
            std::ranges::lower_bound(cuts_, run.end) - cuts_.begin()};
  }

 private:
  std::vector<int64_t> cuts_;
};

Pieces even_pieces(int64_t size, int64_t limit) {
  const int64_t count = std::min(size, limit);
  std::vector<int64_t> cuts = {0};
  for (int64_t i = 0; i < count; ++i) cuts.push_back(even_part_of({0, size}, count, i).end);
  return Pieces(std::move(cuts));
}

/// A piece per index if these are few, else one between two borders if those are few, else even pieces.
Pieces readable_pieces(int64_t size, std::set<int64_t> borders, int64_t limit) {
  borders.insert({0, size});
  if (size <= limit || std::ssize(borders) - 1 > limit) return even_pieces(size, limit);
  return Pieces({borders.begin(), borders.end()});
}

/// A line of pieces: how many cells of each the holders have, and the symbol that shows it.
class Line {
 public:
  explicit Line(int64_t pieces) : cells_(static_cast<size_t>(pieces)) {}

  void add(int64_t piece, size_t holder, int64_t cells) { cells_[static_cast<size_t>(piece)][holder] += cells; }

  std::string text() const {
    std::string text;
    for (const auto& holders : cells_) text += mark(holders);
    return text;
  }

 private:
  /// The symbol of the holder that has at least half of the cells.
  static char mark(const std::map<size_t, int64_t>& holders) {
    int64_t total = 0;
    for (const auto& [holder, cells] : holders) total += cells;
    for (const auto& [holder, cells] : holders) {
      if (cells >= total - cells) return kSymbols[holder % kSymbols.size()];
    }
    return kSeveral;
  }

  std::vector<std::map<size_t, int64_t>> cells_;  // per piece, by holder
};

/// A file with a part of the tensor.
struct Holder {
  int64_t file = 0;
  int64_t cells = 0;
};

/// A tensor's chunks with what the drawing needs of them.
class Drawing {
 public:
  explicit Drawing(const StoredTensor& tensor) : tensor_(tensor), numel_(checked_product(tensor.shape())) {
    for (int64_t i = 0; i < tensor.chunk_count(); ++i) boxes_.push_back(tensor.chunk_box(i));
    for (int64_t i = 0; i < tensor.chunk_count(); ++i) order_.push_back(i);
    std::ranges::sort(order_, {}, [this](int64_t i) { return hull_of(i).begin; });
    for (const int64_t i : order_) add_holder(i);
  }

  std::string text(const std::vector<StoredFile>& files) const {
    std::string text =
        str_cat(printable(tensor_.name()), "  ", tensor_.dtype(), " ", shape_text(tensor_.shape()), ": ",
                count_text(tensor_.chunk_count(), "chunk"), " in ", count_text(std::ssize(holders_), "file"), "\n");
    if (numel_ == 0) return text + "  no cells\n";
    std::vector<std::pair<std::string, std::string>> lines = {{"row-major", bar()}};
    if (tensor_.shape().size() == 2) add_map(lines);
    size_t width = 0;
    for (const auto& [label, marks] : lines) width = std::max(width, label.size());
    for (const auto& [label, marks] : lines) {
      text += str_cat("  ", std::string(width - label.size(), ' '), label, " │ ", marks, "\n");
    }
    return text + legend(files);
  }

 private:
  const Box& box_of(int64_t chunk) const { return boxes_[static_cast<size_t>(chunk)]; }
  Interval hull_of(int64_t chunk) const { return flat_hull(region_of(box_of(chunk)), tensor_.shape()); }
  size_t holder_of(int64_t chunk) const { return holder_of_.at(tensor_.chunk(chunk).file); }

  void add_holder(int64_t chunk) {
    const int64_t file = tensor_.chunk(chunk).file;
    const auto [at, is_new] = holder_of_.try_emplace(file, holders_.size());
    if (is_new) holders_.push_back({file, 0});
    holders_[at->second].cells += box_of(chunk).numel();
  }

  std::string bar() const {
    const Pieces columns = even_pieces(numel_, kMaxColumns);
    Line line(columns.count());
    for (const int64_t chunk : order_) {
      const Box& box = box_of(chunk);
      const Interval met = columns.met_by(hull_of(chunk));
      for (int64_t i = met.begin; i < met.end; ++i) {
        const int64_t cells =
            cells_before(box, tensor_.shape(), columns[i].end) - cells_before(box, tensor_.shape(), columns[i].begin);
        if (cells > 0) line.add(i, holder_of(chunk), cells);
      }
    }
    return line.text();
  }

  /// Rows by columns; nothing where no symbol would show.
  void add_map(std::vector<std::pair<std::string, std::string>>& lines) const {
    std::set<int64_t> borders;
    for (const Box& box : boxes_) borders.insert({box.range(0).begin, box.range(0).end});
    const Pieces rows = readable_pieces(tensor_.shape()[0], std::move(borders), kMaxLines);
    const Pieces columns = even_pieces(tensor_.shape()[1], kMaxColumns);
    std::vector<Line> map(static_cast<size_t>(rows.count()), Line(columns.count()));
    for (const int64_t chunk : order_) add_to_map(chunk, rows, columns, map);
    const auto shows_symbol = [](const Line& line) {
      return line.text().find_first_not_of(kSeveral) != std::string::npos;
    };
    if (std::ranges::none_of(map, shows_symbol)) return;
    for (int64_t row = 0; row < rows.count(); ++row) {
      const Interval run = rows[row];
      lines.emplace_back(run.size() == 1 ? str_cat(run.begin) : str_cat(run.begin, ":", run.end),
                         map[static_cast<size_t>(row)].text());
    }
  }

  void add_to_map(int64_t chunk, const Pieces& rows, const Pieces& columns, std::vector<Line>& map) const {
    const Box& box = box_of(chunk);
    const Interval met_rows = rows.met_by(box.range(0));
    const Interval met_columns = columns.met_by(box.range(1));
    for (int64_t row = met_rows.begin; row < met_rows.end; ++row) {
      const int64_t height = intersect(rows[row], box.range(0)).size();
      for (int64_t i = met_columns.begin; i < met_columns.end; ++i) {
        const int64_t cells = height * intersect(columns[i], box.range(1)).size();
        map[static_cast<size_t>(row)].add(i, holder_of(chunk), cells);
      }
    }
  }

  std::string legend(const std::vector<StoredFile>& files) const {
    const auto shown = std::min<size_t>(holders_.size(), kMaxLines);
    size_t width = 0;
    for (size_t i = 0; i < shown; ++i) width = std::max(width, count_text(holders_[i].cells, "cell").size());
    std::string text;
    for (size_t i = 0; i < shown; ++i) {
      const std::string cells = count_text(holders_[i].cells, "cell");
      const std::string share = share_text(holders_[i].cells);
      text += str_cat("  ", kSymbols.substr(i, 1), "  ", std::string(width - cells.size(), ' '), cells, "  ",
                      std::string(4 - share.size(), ' '), share, "  ",
                      printable(files[static_cast<size_t>(holders_[i].file)].name), "\n");
    }
    if (shown < holders_.size()) text += str_cat("  … and ", count_text(std::ssize(holders_) - kMaxLines, "more file"));
    if (holders_.size() > kSymbols.size()) text += str_cat("; symbols repeat after ", kSymbols.size());
    return text += shown < holders_.size() ? "\n" : "";
  }

  /// As a whole percentage, "<1%" for a little.
  std::string share_text(int64_t cells) const {
    const double percent = 100 * static_cast<double>(cells) / static_cast<double>(numel_);
    return percent < 1 ? "<1%" : str_cat(std::lround(percent), "%");
  }

  const StoredTensor& tensor_;
  int64_t numel_;
  std::vector<Box> boxes_;
  std::vector<int64_t> order_;           // chunks by their first cell
  std::vector<Holder> holders_;          // by their first cell
  std::map<int64_t, size_t> holder_of_;  // by file
};

}  // namespace

std::string holders_picture(const StoredTensor& tensor, const std::vector<StoredFile>& files) {
  return Drawing(tensor).text(files);
}

}  // namespace hyper_parallel
