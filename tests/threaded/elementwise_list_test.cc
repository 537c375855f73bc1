// The forms on lists that torch's optimizers call: every element as the single operation on it, and a step of Adam and
// of SGD.

#include <gtest/gtest.h>

#include <map>

#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

using enum ErrorCode;

/// Three tensors of unlike layouts; the second is empty on all ranks but one, the last is sharded.
struct Lists {
  explicit Lists(const MeshCommunicator& mesh_) : mesh(mesh_) {
    for (int i = 0; i < 3; ++i) {
      a.push_back(positive_values() + i);
      b.push_back(at::cos(values() + i) + 2);
    }
    for (size_t i = 0; i < 3; ++i) {
      x.push_back(distribute(a[i], mesh, placements[i]));
      y.push_back(distribute(b[i], mesh, placements[i]));
    }
  }

  MeshCommunicator mesh;
  std::vector<std::vector<Placement>> placements{ragged({1, 2, 0, 3}), ragged({0, 6, 0, 0}), {Shard(0)}};
  std::vector<at::Tensor> a, b;
  std::vector<DTensor> x, y;
};

/// Calls `name`, in place if its name says so, and compares with `expected` of each element.
template <typename Expected>
void expect_elements(const Lists& lists, const std::string& name, const std::vector<Argument>& behind,
                     const Expected& expected, c10::ArrayRef<Keyword> keywords = {}) {
  std::vector<DTensor> x;
  for (const DTensor& tensor : lists.x) x.push_back(clone(tensor));
  std::vector<Argument> arguments{Argument::list(x)};
  arguments.insert(arguments.end(), behind.begin(), behind.end());
  const std::vector<DTensor> results = call(name, arguments, keywords);
  ASSERT_EQ(results.size(), 3u) << name;
  for (size_t i = 0; i < 3; ++i) {
    const std::string what = str_cat(name, " of element ", i);
    expect_whole(results[i], expected(i), what);
    EXPECT_EQ(results[i].placements(), lists.x[i].placements()) << what;
    EXPECT_EQ(results[i].local().is_same(x[i].local()), name.ends_with('_')) << what;
  }
}

TEST(ElementwiseList_Unary, EveryElement_IsTheSingleOperation) {
  using Unary = at::Tensor (*)(const at::Tensor&);
  const std::map<std::string, Unary> unary = {{"abs", at::abs},
                                              {"neg", at::neg},
                                              {"reciprocal", at::reciprocal},
                                              {"rsqrt", at::rsqrt},
                                              {"sign", at::sign},
                                              {"sqrt", at::sqrt},
                                              {"zero", [](const at::Tensor& x) { return at::zeros_like(x); }}};
  on_mesh(4, [&](const MeshCommunicator& mesh) {
    const Lists lists(mesh);
    for (const auto& [name, plain] : unary) {
      for (const char* behind : {"", "_"}) {
        const std::string form = str_cat("_foreach_", name, behind);
        if (find_operation(form) == nullptr) continue;
        expect_elements(lists, form, {}, [&](size_t i) { return plain(lists.a[i]); });
      }
    }
  });
}

TEST(ElementwiseList_Binary, ListsNumbersAndOneTensor_AreTheSingleOperation) {
  struct Plain {
    at::Tensor (*tensor)(const at::Tensor&, const at::Tensor&);
    at::Tensor (*number)(const at::Tensor&, const at::Scalar&);
  };
  const std::map<std::string, Plain> binary = {
      {"add", {[](auto& a, auto& b) { return a + b; }, [](auto& a, auto& b) { return a + b; }}},
      {"sub", {[](auto& a, auto& b) { return a - b; }, [](auto& a, auto& b) { return a - b; }}},
      {"mul", {[](auto& a, auto& b) { return a * b; }, [](auto& a, auto& b) { return a * b; }}},
      {"div", {[](auto& a, auto& b) { return a / b; }, [](auto& a, auto& b) { return a / b; }}},
      {"pow", {[](auto& a, auto& b) { return at::pow(a, b); }, [](auto& a, auto& b) { return at::pow(a, b); }}},
      {"maximum", {at::maximum, [](auto& a, auto& b) { return at::clamp_min(a, b); }}},
      {"minimum", {at::minimum, [](auto& a, auto& b) { return at::clamp_max(a, b); }}},
      {"clamp_max", {at::minimum, [](auto& a, auto& b) { return at::clamp_max(a, b); }}},
      {"clamp_min", {at::maximum, [](auto& a, auto& b) { return at::clamp_min(a, b); }}},
      {"copy", {[](auto&, auto& b) { return b.clone(); }, nullptr}}};
  on_mesh(4, [&](const MeshCommunicator& mesh) {
    const Lists lists(mesh);
    const Argument numbers(Argument::List{0.5, 2, 3.5});
    const std::vector<at::Scalar> number{0.5, 2, 3.5};
    for (const auto& [name, plain] : binary) {
      for (const char* behind : {"", "_"}) {
        const std::string form = str_cat("_foreach_", name, behind);
        if (find_operation(form) == nullptr) continue;
        expect_elements(lists, form, {Argument::list(lists.y)},
                        [&](size_t i) { return plain.tensor(lists.a[i], lists.b[i]); });
        if (plain.number == nullptr) continue;
        expect_elements(lists, form, {1.5}, [&](size_t i) { return plain.number(lists.a[i], 1.5); });
        expect_elements(lists, form, {numbers}, [&](size_t i) { return plain.number(lists.a[i], number[i]); });
        if (name == "add" || name == "mul" || name == "div") {
          const at::Tensor element = at::full({}, 2.5f);
          expect_elements(lists, form, {element}, [&](size_t i) { return plain.tensor(lists.a[i], element); });
        }
      }
    }
    expect_elements(lists, "_foreach_add", {Argument::list(lists.y)},
                    [&](size_t i) { return at::add(lists.a[i], lists.b[i], 3); }, {{"alpha", 3}});
    const std::vector<DTensor> powers = call("_foreach_pow", {2.0, Argument::list(lists.y)});
    for (size_t i = 0; i < 3; ++i) expect_whole(powers[i], at::pow(2.0, lists.b[i]), "number to the powers");
  });
}

TEST(ElementwiseList_ThreeOperands, AreTheSingleOperation) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const Lists lists(mesh);
    const Argument y = Argument::list(lists.y);
    const Argument x = Argument::list(lists.x);
    const Argument numbers(Argument::List{0.5, 2, 3.5});
    const std::vector<double> number{0.5, 2, 3.5};
    for (const char* form : {"_foreach_addcmul", "_foreach_addcmul_"}) {
      expect_elements(lists, form, {y, x, 0.5},
                      [&](size_t i) { return at::addcmul(lists.a[i], lists.b[i], lists.a[i], 0.5); });
      expect_elements(lists, form, {y, x, numbers},
                      [&](size_t i) { return at::addcmul(lists.a[i], lists.b[i], lists.a[i], number[i]); });
    }
    expect_elements(lists, "_foreach_addcdiv_", {y, x, numbers},
                    [&](size_t i) { return at::addcdiv(lists.a[i], lists.b[i], lists.a[i], number[i]); });
    const at::Tensor packed = at::tensor({0.5f, 2.0f, 3.5f});
    expect_elements(lists, "_foreach_addcmul_", {y, x, packed},
                    [&](size_t i) { return at::addcmul(lists.a[i], lists.b[i], lists.a[i], number[i]); });
    expect_elements(lists, "_foreach_lerp_", {y, 0.25},
                    [&](size_t i) { return at::lerp(lists.a[i], lists.b[i], 0.25); });
    expect_elements(lists, "_foreach_lerp_", {y, Argument::list(lists.y)},
                    [&](size_t i) { return at::lerp(lists.a[i], lists.b[i], lists.b[i]); });
  });
}

TEST(ElementwiseList_AdamStep, OnRaggedParameters_IsThePlainStep) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const Lists lists(mesh);
    std::vector<DTensor> average, squares;
    for (const DTensor& tensor : lists.x) {
      average.push_back(zeros_like(tensor));
      squares.push_back(zeros_like(tensor));
    }
    const auto list = [](const std::vector<DTensor>& tensors) { return Argument::list(tensors); };
    call("_foreach_lerp_", {list(average), list(lists.y), 0.1});
    call("_foreach_mul_", {list(squares), 0.99});
    call("_foreach_addcmul_", {list(squares), list(lists.y), list(lists.y), 0.01});
    const std::vector<DTensor> root = call("_foreach_sqrt", {list(squares)});
    call("_foreach_div_", {list(root), 0.1});
    call("_foreach_add_", {list(root), 1e-8});
    call("_foreach_addcdiv_", {list(lists.x), list(average), list(root), -0.01});
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor gradient = lists.b[i];
      const at::Tensor divisor = (0.01 * gradient * gradient).sqrt() / 0.1 + 1e-8;
      expect_whole(lists.x[i], lists.a[i] - 0.01 * (0.1 * gradient) / divisor, str_cat("parameter ", i));
    }
  });
}

TEST(ElementwiseList_Faults, AreNamed) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, ragged({1, 2}));
    const DTensor y = distribute(values(), mesh, ragged({2, 1}));
    const std::vector<DTensor> two{x, x};
    const std::vector<DTensor> unlike{x, y};
    expect_error(kInvalidArgument,
                 "operation '_foreach_add': argument 'other' is a list of 1 but the lists before it have 2",
                 [&] { call("_foreach_add", {Argument::list(two), Argument::list(std::vector<DTensor>{x})}); });
    expect_error(kInvalidArgument,
                 "operation '_foreach_add_': argument 'other' with placements [RaggedShard((0,), (2, 1))] lies on",
                 [&] { call("_foreach_add_", {Argument::list(two), Argument::list(unlike)}); });
    expect_whole(x, values(), "an operand of the refused call");
    expect_error(kType, "operation '_foreach_mul': argument 'other' is a plain tensor of shape (2,) but must be",
                 [&] { call("_foreach_mul", {Argument::list(two), at::ones({2})}); });
    expect_error(kUnimplemented, "operation '_foreach_mul': argument 'other' requires grad",
                 [&] { call("_foreach_mul", {Argument::list(two), at::ones({}).requires_grad_()}); });
    expect_error(kType, "operation '_foreach_abs' was given no DTensor",
                 [&] { call("_foreach_abs", {Argument(Argument::List{x, at::ones({})})}); });
    expect_error(kUnimplemented, "operation '_foreach_norm' is not supported on a ragged DTensor",
                 [&] { call("_foreach_norm", {Argument::list(two)}); });
    EXPECT_TRUE(call("_foreach_abs", {Argument::list(std::vector<DTensor>{})}).empty());
  });
}

}  // namespace
}  // namespace hyper_parallel::test
