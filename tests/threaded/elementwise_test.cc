// Every operation of the table on ragged tensors, in each form that applies, against plain torch on the whole tensor:
// values, dtypes, placements, and gradients of losses that differ between the ranks.

#include <gtest/gtest.h>

#include <map>

#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

using Unary = at::Tensor (*)(const at::Tensor&);

const std::map<std::string, Unary>& unary_operations() {
  static const std::map<std::string, Unary> kOperations = {
      {"abs", at::abs},
      {"absolute", at::absolute},
      {"cos", at::cos},
      {"exp", at::exp},
      {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
      {"isinf", at::isinf},
      {"isnan", at::isnan},
      {"log", at::log},
      {"neg", at::neg},
      {"negative", at::negative},
      {"reciprocal", at::reciprocal},
      {"relu", at::relu},
      {"rsqrt", at::rsqrt},
      {"sigmoid", at::sigmoid},
      {"sign", at::sign},
      {"silu", at::silu},
      {"sin", at::sin},
      {"sqrt", at::sqrt},
      {"square", at::square},
      {"clone", [](const at::Tensor& x) { return x.clone(); }},
      {"zeros_like", [](const at::Tensor& x) { return at::zeros_like(x); }},
      {"ones_like", [](const at::Tensor& x) { return at::ones_like(x); }},
  };
  return kOperations;
}

bool needs_positive(const std::string& name) { return name == "log" || name == "sqrt" || name == "rsqrt"; }

DTensor once(const std::string& name, c10::ArrayRef<Argument> arguments, c10::ArrayRef<Keyword> keywords = {}) {
  const std::vector<DTensor> results = call(name, arguments, keywords);
  EXPECT_EQ(results.size(), 1u);
  return results.front();
}

/// The operation on a ragged tensor is plain torch's: the same values or, for a dtype that torch refuses, the same
/// error on every rank, whether or not it holds an element.
template <typename Plain, typename Distributed>
void expect_as_plain(const std::string& what, const Plain& plain, const Distributed& distributed) {
  at::Tensor expected;
  const std::string error = torch_error([&] { expected = plain(); });
  if (error.empty()) {
    expect_whole(distributed(), expected, what);
  } else {
    EXPECT_EQ(torch_error([&] { distributed(); }), error) << what;
  }
}

const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kBool};

TEST(Elementwise_Unary, OnEveryDtypeAndUnits_IsPlainTorch) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const auto& placements : ragged_layouts()) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const auto& [name, plain] : unary_operations()) {
          const at::Tensor whole = needs_positive(name) ? positive_values(dtype) : values(dtype);
          const DTensor x = distribute(whole, mesh, placements);
          const std::string what = str_cat(name, " of ", c10::toString(dtype), " ", to_string(placements));
          expect_as_plain(what, [&] { return plain(whole); }, [&] { return once(name, {x}); });
        }
      }
    }
  });
}

TEST(Elementwise_Unary, InPlace_ChangesTheSameStorage) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const auto& placements : ragged_layouts()) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const auto& [name, plain] : unary_operations()) {
          const std::string in_place = name + "_";
          if (find_operation(in_place) == nullptr) continue;
          const at::Tensor whole = needs_positive(name) ? positive_values(dtype) : values(dtype);
          const DTensor x = distribute(whole, mesh, placements);
          const auto in_plain = [&] { return whole.clone().copy_(plain(whole)); };
          // Where the result has another dtype, torch refuses the in-place form.
          if (torch_error(in_plain).empty() && plain(whole).scalar_type() == dtype) {
            const DTensor result = once(in_place, {x});
            EXPECT_TRUE(result.local().is_same(x.local())) << in_place;
            expect_whole(x, in_plain(), in_place);
          } else {
            EXPECT_NE(torch_error([&] { once(in_place, {x}); }), "") << in_place << " of " << c10::toString(dtype);
          }
        }
      }
    }
  });
}

TEST(Elementwise_Unary, Gradient_IsThatOfAllRanksLosses) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const auto& placements : ragged_layouts()) {
      for (const auto& [name, plain] : unary_operations()) {
        if (name == "isinf" || name == "isnan" || name.ends_with("_like")) continue;
        const at::Tensor whole = needs_positive(name) ? positive_values() : values();
        const at::Tensor weights = at::arange(1, 25, at::kFloat).reshape({6, 4});
        const DTensor x = distribute(at::Tensor(whole.clone()).requires_grad_(), mesh, placements);
        const DTensor y = once(name, {x});
        EXPECT_TRUE(y.requires_grad()) << name;
        // Each rank's loss weighs the whole by another number: 1, 2, 3, 4, which adds up to 10.
        (y.full_tensor() * weights * (mesh.rank() + 1)).sum().backward();

        const at::Tensor leaf = at::Tensor(whole.clone()).requires_grad_();
        (plain(leaf) * weights * 10).sum().backward();
        ASSERT_TRUE(x.grad().has_value()) << name;
        EXPECT_EQ(x.grad()->placements(), x.placements());
        expect_whole(*x.grad(), leaf.grad(), str_cat("gradient of ", name));
      }
    }
  });
}

struct Binary {
  at::Tensor (*tensor)(const at::Tensor&, const at::Tensor&);
  at::Tensor (*number)(const at::Tensor&, const at::Scalar&);
};

at::Tensor reversed_pow(const at::Tensor& x, const at::Tensor& other) { return at::pow(other, x); }
at::Tensor reversed_pow(const at::Tensor& x, const at::Scalar& other) { return at::pow(other, x); }

const std::map<std::string, Binary>& binary_operations() {
  static const std::map<std::string, Binary> kOperations = {
      {"add", {[](auto& a, auto& b) { return at::add(a, b); }, [](auto& a, auto& b) { return at::add(a, b); }}},
      {"radd", {[](auto& a, auto& b) { return b + a; }, [](auto& a, auto& b) { return b + a; }}},
      {"sub", {[](auto& a, auto& b) { return at::sub(a, b); }, [](auto& a, auto& b) { return at::sub(a, b); }}},
      {"rsub", {[](auto& a, auto& b) { return at::sub(b, a); }, [](auto& a, auto& b) { return at::rsub(a, b); }}},
      {"__rsub__", {[](auto& a, auto& b) { return at::sub(b, a); }, [](auto& a, auto& b) { return at::rsub(a, b); }}},
      {"mul", {[](auto& a, auto& b) { return at::mul(a, b); }, [](auto& a, auto& b) { return at::mul(a, b); }}},
      {"rmul", {[](auto& a, auto& b) { return b * a; }, [](auto& a, auto& b) { return b * a; }}},
      {"div", {[](auto& a, auto& b) { return at::div(a, b); }, [](auto& a, auto& b) { return at::div(a, b); }}},
      {"true_divide",
       {[](auto& a, auto& b) { return at::true_divide(a, b); },
        [](auto& a, auto& b) { return at::true_divide(a, b); }}},
      {"real_div",
       {[](auto& a, auto& b) { return at::true_divide(a, b); },
        [](auto& a, auto& b) { return at::true_divide(a, b); }}},
      // torch's a / x in Python; its C++ operator works in place and refuses integers.
      {"rdiv", {[](auto& a, auto& b) { return at::div(b, a); }, [](auto& a, auto& b) { return a.reciprocal() * b; }}},
      {"pow", {[](auto& a, auto& b) { return at::pow(a, b); }, [](auto& a, auto& b) { return at::pow(a, b); }}},
      {"rpow", {reversed_pow, reversed_pow}},
      {"__rpow__", {reversed_pow, reversed_pow}},
      {"eq", {[](auto& a, auto& b) { return at::eq(a, b); }, [](auto& a, auto& b) { return at::eq(a, b); }}},
      {"ne", {[](auto& a, auto& b) { return at::ne(a, b); }, [](auto& a, auto& b) { return at::ne(a, b); }}},
      {"lt", {[](auto& a, auto& b) { return at::lt(a, b); }, [](auto& a, auto& b) { return at::lt(a, b); }}},
      {"le", {[](auto& a, auto& b) { return at::le(a, b); }, [](auto& a, auto& b) { return at::le(a, b); }}},
      {"gt", {[](auto& a, auto& b) { return at::gt(a, b); }, [](auto& a, auto& b) { return at::gt(a, b); }}},
      {"ge", {[](auto& a, auto& b) { return at::ge(a, b); }, [](auto& a, auto& b) { return at::ge(a, b); }}},
      {"maximum", {at::maximum, nullptr}},
      {"minimum", {at::minimum, nullptr}},
  };
  return kOperations;
}

/// The second tensor operand: no zero, no power that overflows.
at::Tensor other_values(at::ScalarType dtype) { return (at::arange(24).reshape({6, 4}) % 3 + 1).to(dtype); }

TEST(Elementwise_Binary, WithTensorOperands_IsPlainTorch) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const at::ScalarType other_dtype : kDtypes) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const auto& [name, plain] : binary_operations()) {
          const at::Tensor a = positive_values(dtype);
          const at::Tensor b = other_values(other_dtype);
          const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
          const std::string what = str_cat(name, " of ", c10::toString(dtype), " and ", c10::toString(other_dtype));
          const auto expected = [&] { return plain.tensor(a, b); };
          // The same layout; the same runs under other dims and units; sliced from a Replicate tensor.
          for (const auto& placements : {ragged({1, 2, 0, 3}), ragged({4, 8, 0, 12}, {0, 1}), replicated()}) {
            const DTensor y = distribute(b, mesh, placements);
            expect_as_plain(what, expected, [&] {
              const DTensor z = once(name, {x, y});
              EXPECT_EQ(z.placements(), x.placements());
              return z;
            });
          }
          // A Replicate tensor in front: the ragged one behind still says how the result lies.
          const DTensor front = distribute(a, mesh, replicated());
          const DTensor behind = distribute(b, mesh, ragged({1, 2, 0, 3}));
          expect_as_plain(what, expected, [&] { return once(name, {front, behind}); });
        }
      }
    }
  });
}

TEST(Elementwise_Binary, WithOneElement_KeepsItsClassInTypePromotion) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const at::ScalarType other_dtype : kDtypes) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const auto& [name, plain] : binary_operations()) {
          const at::Tensor a = positive_values(dtype);
          const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
          for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
            const at::Tensor element = at::full(shape, 2, other_dtype);
            const std::string what = str_cat(name, " of ", c10::toString(dtype), " and ", tuple_text(shape), " ",
                                             c10::toString(other_dtype));
            expect_as_plain(what, [&] { return plain.tensor(a, element); }, [&] { return once(name, {x, element}); });
            if (shape.size() == 1) continue;  // as (1, 1)
            const DTensor everywhere = distribute(element, mesh, replicated());
            expect_as_plain(
                what, [&] { return plain.tensor(a, element); }, [&] { return once(name, {x, everywhere}); });
          }
        }
      }
    }
  });
}

TEST(Elementwise_Binary, WithNumbers_IsPlainTorch) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const at::Scalar& number : {at::Scalar(2), at::Scalar(2.5), at::Scalar(true)}) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const auto& [name, plain] : binary_operations()) {
          if (plain.number == nullptr) continue;
          const at::Tensor a = positive_values(dtype);
          const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
          const std::string what = str_cat(name, " of ", c10::toString(dtype), " and ", Argument(number).describe());
          expect_as_plain(what, [&] { return plain.number(a, number); }, [&] { return once(name, {x, number}); });
        }
      }
    }
  });
}

TEST(Elementwise_Binary, InPlace_IsPlainTorch) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    for (const auto& [name, plain] : binary_operations()) {
      const std::string in_place = name + "_";
      if (find_operation(in_place) == nullptr) continue;
      const at::Tensor a = positive_values();
      const at::Tensor b = other_values(at::kLong);
      const DTensor x = distribute(a, mesh, ragged({5, 0, 1, 6}, {0, 1}));
      const DTensor y = distribute(b, mesh, replicated());
      const DTensor result = once(in_place, {x, y});
      EXPECT_TRUE(result.local().is_same(x.local())) << in_place;
      expect_whole(x, plain.tensor(a, b), in_place);
      const at::Tensor before = x.full_tensor();
      once(in_place, {x, 3});
      expect_whole(x, plain.number(before, 3), in_place + " with a number");
    }
  });
}

TEST(Elementwise_Binary, Operators_AreTheFunctions) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = positive_values();
    const at::Tensor b = values();
    const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
    const DTensor y = distribute(b, mesh, ragged({1, 2, 0, 3}));
    const at::Tensor element = at::full({}, 3.0f);
    expect_whole(x + y, a + b, "x + y");
    expect_whole(x - y, a - b, "x - y");
    expect_whole(x * y, a * b, "x * y");
    expect_whole(y / x, b / a, "y / x");
    expect_whole(-x, -a, "-x");
    expect_whole(x + 2, a + 2, "x + 2");
    expect_whole(2 - x, 2 - a, "2 - x");
    expect_whole(2 * x, 2 * a, "2 * x");
    expect_whole(2 / x, a.reciprocal() * 2, "2 / x");
    expect_whole(0.5 + x, 0.5 + a, "0.5 + x");
    expect_whole(x * element, a * element, "x * element");
    x += y;
    x -= 1;
    x *= element;
    x /= 2.0;
    expect_whole(x, (a + b - 1) * element / 2, "in place");
  });
}

TEST(Elementwise_Keywords, AreHonoured) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = values();
    const at::Tensor b = other_values(at::kFloat);
    const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
    const DTensor y = distribute(b, mesh, ragged({1, 2, 0, 3}));
    expect_whole(add(x, y, 3), at::add(a, b, 3), "add alpha");
    expect_whole(sub(x, y, 0.5), at::sub(a, b, 0.5), "sub alpha");
    expect_whole(once("add", {x, 2}, {{"alpha", 3}}), at::add(a, 2, 3), "add number alpha");
    expect_whole(once("rsub", {x, y}, {{"alpha", 2}}), at::sub(b, a, 2), "rsub alpha");
    for (const std::string_view mode : {"trunc", "floor"}) {
      expect_whole(div(x, y, mode), at::div(a, b, mode), "div rounding_mode");
      expect_whole(div(x, 3, mode), at::div(a, at::Scalar(3), mode), "div number rounding_mode");
    }
    expect_whole(once("div", {x, y}, {{"rounding_mode", std::nullopt}}), at::div(a, b), "div without rounding");
    expect_whole(gelu(x, "tanh"), at::gelu(a, "tanh"), "gelu tanh");
    expect_whole(once("zeros_like", {x}, {{"dtype", at::kLong}}), at::zeros({6, 4}, at::kLong), "zeros_like dtype");
    expect_whole(once("clone", {x}, {{"memory_format", at::MemoryFormat::Preserve}}), a, "clone memory_format");
    expect_whole(once("add", {}, {{"other", y}, {"input", x}}), a + b, "add by keywords");
  });
}

TEST(Elementwise_ThreeOperands, AndBounds_ArePlainTorch) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = values();
    const at::Tensor b = positive_values();
    const at::Tensor c = other_values(at::kFloat);
    const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
    const DTensor y = distribute(b, mesh, replicated());
    const DTensor z = distribute(c, mesh, ragged({1, 2, 0, 3}));
    const at::Tensor one = at::full({1}, 0.25f);
    expect_whole(lerp(x, y, 0.25), at::lerp(a, b, 0.25), "lerp");
    expect_whole(lerp(x, y, z), at::lerp(a, b, c), "lerp with weights");
    expect_whole(lerp(x, y, one), at::lerp(a, b, one), "lerp with one weight");
    expect_whole(addcmul(x, y, z, 0.5), at::addcmul(a, b, c, 0.5), "addcmul");
    expect_whole(addcdiv(x, y, z, 2), at::addcdiv(a, b, c, 2), "addcdiv");
    const at::Tensor two = at::full({}, 2);
    expect_whole(call("addcdiv", {x, y, z}, {{"value", two}}).front(), at::addcdiv(a, b, c, 2),
                 "addcdiv with a tensor that is a number");
    expect_whole(clamp(x, -1, 2.5), at::clamp(a, -1, 2.5), "clamp");
    expect_whole(clamp(x, {}, 2), at::clamp(a, std::nullopt, 2), "clamp max");
    expect_whole(clamp(x, {}, y), at::clamp(a, std::optional<at::Tensor>(), b), "clamp with a tensor");
    const DTensor positive = gt(x, 0);
    expect_whole(where(positive, y, z), at::where(a > 0, b, c), "where");
    expect_whole(where(positive, x, 0.0), at::where(a > 0, a, 0.0), "where with a number");
    expect_whole(where(positive, 1, 2), at::where(a > 0, 1, 2), "where of numbers");
    expect_whole(lerp_(clone(x), y, 0.25), at::lerp(a, b, 0.25), "lerp_");
    expect_whole(addcmul_(clone(x), y, z, 0.5), at::addcmul(a, b, c, 0.5), "addcmul_");
    expect_whole(addcdiv_(clone(x), y, z, 2), at::addcdiv(a, b, c, 2), "addcdiv_");
    expect_whole(clamp_(clone(x), -1), at::clamp(a, -1), "clamp_");
    expect_whole(once("clamp_min", {x, -1}), at::clamp_min(a, -1), "clamp_min");
    expect_whole(once("clamp_max", {x, y}), at::clamp_max(a, b), "clamp_max with a tensor");
    expect_whole(once("clamp_min_", {clone(x), y}), at::clamp_min(a, b), "clamp_min_ with a tensor");
    expect_whole(once("clamp_max_", {clone(x), 2}), at::clamp_max(a, 2), "clamp_max_");
  });
}

TEST(Elementwise_Filling, AndCasting_ArePlainTorch) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = values();
    const DTensor x = distribute(a, mesh, ragged({1, 2, 0, 3}));
    expect_whole(to(x, at::kLong), a.to(at::kLong), "to");
    EXPECT_TRUE(to(x, at::kFloat).local().is_same(x.local()));
    expect_whole(full_like(x, 7), at::full_like(a, 7), "full_like");
    EXPECT_EQ(empty_like(x).local().sizes(), x.local().sizes());
    const DTensor target = clone(x);
    copy_(target, distribute(a.to(at::kDouble) + 1, mesh, replicated()));
    expect_whole(target, a + 1, "copy_");
    copy_(target, at::full({1}, 5));
    expect_whole(target, at::full({6, 4}, 5.0f), "copy_ of one element");
    expect_whole(fill_(target, 2.5), at::full({6, 4}, 2.5f), "fill_");
    expect_whole(fill_(target, at::full({}, 3.5f)), at::full({6, 4}, 3.5f), "fill_ with a tensor");
    expect_whole(zero_(target), at::zeros({6, 4}), "zero_");
    const DTensor shared = once("detach", {x});
    EXPECT_FALSE(shared.requires_grad());
    EXPECT_EQ(shared.local().data_ptr(), x.local().data_ptr());
  });
}

TEST(Elementwise_RaggedRow, ZeroedInPlace_ChangesTheOwnerAlone) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const at::Tensor whole = at::arange(1, 17, at::kFloat).reshape({4, 4});
    const DTensor x = distribute(whole, mesh, {Shard(0)});
    zero_(x[2]);
    const at::Tensor expected = whole.clone();
    expected[2].zero_();
    expect_whole(x, expected, "x[2].zero_()");
  });
}

TEST(Elementwise_OtherMeshes, PermutedPartialAndTwoDims_ArePlainTorch) {
  run_ranks(4, [](const ThreadRank& rank) {
    const MeshCommunicator some(rank.group, DeviceMesh({2}, {"dp"}, {3, 0}));
    const at::Tensor a = values();
    const DTensor x = distribute(a, some, ragged({1, 2}));
    const DTensor y = distribute(a, some, replicated());
    const at::Tensor element = at::full({1}, 2.5, at::kDouble);
    expect_whole(x + y, a + a, "on ranks 3 and 0");
    expect_whole(x * element, a * element, "with one element");
    expect_whole(x * distribute(at::full({}, 2.5, at::kDouble), some, replicated()), a * 2.5,
                 "with one element everywhere");
    EXPECT_EQ((x + 1).local().numel(), rank.rank == 3 ? 8 : rank.rank == 0 ? 16 : 0);

    const MeshCommunicator grid(rank.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const DTensor z = distribute(a, grid, {Replicate{}, RaggedShard({0}, {2, 1})});
    expect_whole(relu(z) - z, at::relu(a) - a, "on two mesh dims");
  });
}

TEST(Elementwise_OtherMeshes, EmptyLocalsOfUnlikeSizesOutside_FitEachOther) {
  run_ranks(2, [](const ThreadRank& rank) {
    const MeshCommunicator first(rank.group, DeviceMesh({1}, {"dp"}));
    const bool outside = rank.rank == 1;
    const auto make = [&](const at::Tensor& whole, const std::vector<int64_t>& outside_sizes) {
      const at::Tensor local = outside ? at::empty(outside_sizes) : whole;
      return DTensor::from_local(local, first, {Shard(0)}, std::vector<int64_t>{6, 4});
    };
    const DTensor sum = make(values(), {0}) + make(positive_values(), {0, 3});
    EXPECT_EQ(sum.local().sizes(), outside ? at::IntArrayRef({0}) : at::IntArrayRef({6, 4}));
    expect_whole(sum, values() + positive_values(), "sum");
  });
}

TEST(Elementwise_NormalLayouts, LikeOperands_RunOnTheShards) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = values();
    const at::Tensor b = positive_values();
    for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate{})}) {
      const DTensor x = distribute(a, mesh, {placement});
      const DTensor y = distribute(b, mesh, {placement});
      expect_whole(relu(x) * y + 2, at::relu(a) * b + 2, to_string(placement));
      expect_whole(x * at::full({1, 1}, 3, at::kDouble), a * at::full({1, 1}, 3, at::kDouble), to_string(placement));
    }
  });
}

TEST(Elementwise_Table, EveryName_HasATestAgainstPlainTorch) {
  std::set<std::string> tested = {"lerp",   "addcmul",   "addcdiv",    "clamp",     "where",
                                  "to",     "full_like", "empty_like", "copy_",     "fill_",
                                  "zero_",  "detach",    "lerp_",      "addcmul_",  "addcdiv_",
                                  "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"};
  for (const auto& [name, plain] : unary_operations()) tested.insert({name, name + "_"});
  for (const auto& [name, plain] : binary_operations()) tested.insert({name, name + "_"});
  for (const std::string_view name : operation_names()) {
    // The forms on lists have their own test program; the other names of the reversed forms are the same rows.
    if (name.starts_with("_foreach_") || name.starts_with("__r")) continue;
    // What works by a rule is compared in Python, form by form.
    const Operation& operation = *find_operation(name);
    if (operation.rule != nullptr || operation.composite != nullptr) continue;
    EXPECT_TRUE(tested.contains(std::string(name))) << name;
  }
}

}  // namespace
}  // namespace hyper_parallel::test
