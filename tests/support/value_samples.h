#pragma once

// For tests of whatever moves values: one of each kind and the awkward ones.

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/value.h"

namespace hyper_parallel {

inline std::vector<Value> value_samples() {
  const double nan = std::bit_cast<double>(uint64_t{0x7ff8000000000000});
  const double other_nan = std::bit_cast<double>(uint64_t{0xfff8000000000001});
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueDict dict{{{Value("lr"), Value(0.1)},
                        {Value(int64_t{7}), Value()},
                        {Value(1.5), Value(true)},
                        {Value(true), Value(ValueList{})},
                        {Value(ValueTuple{{Value(int64_t{1}), Value("x")}}), Value(ValueDict{})},
                        {Value(), Value(Bytes{"b"})}}};
  return {Value(),
          Value(true),
          Value(false),
          Value(int64_t{0}),
          Value(std::numeric_limits<int64_t>::min()),
          Value(std::numeric_limits<int64_t>::max()),
          Value(BigInteger{"9223372036854775808"}),
          Value(BigInteger{"-9223372036854775809"}),
          Value(BigInteger{"1" + std::string(400, '0')}),
          Value(0.0),
          Value(-0.0),
          Value(1.0),
          Value(0.1),
          Value(1e22),
          Value(std::numeric_limits<double>::denorm_min()),
          Value(std::numeric_limits<double>::max()),
          Value(nan),
          Value(other_nan),
          Value(infinity),
          Value(-infinity),
          Value(std::complex<double>(1.5, -0.0)),
          Value(std::complex<double>(nan, -infinity)),
          Value(""),
          Value("text"),
          Value("quotes \" ' \\ and \n and \xc3\xa9 and \xf0\x9f\x98\x80"),
          Value(std::string("nul \0 inside", 12)),
          Value(Bytes{""}),
          Value(Bytes{std::string("\0\xff\x80 any", 7)}),
          Value(ValueList{}),
          Value(ValueTuple{}),
          Value(ValueDict{}),
          Value(ValueList{{Value(int64_t{1}), Value(ValueTuple{{Value(2.0)}}), Value(ValueList{{Value()}})}}),
          Value(dict)};
}

/// A list in a list in a list..
inline Value nested_lists(int levels) {
  Value value;
  for (int i = 0; i < levels; ++i) value = ValueList{{value}};
  return value;
}

}  // namespace hyper_parallel
