#include "hyper_parallel/checkpoint/metadata_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/value_json.h"
#include "tests/support/expect_error.h"
#include "tests/support/metadata_text.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

void expect_refused(const std::string& document, const std::string& text) {
  expect_error(ErrorCode::kDataLoss, text, [&] { parse_metadata_parts(document); });
}

void expect_refused(std::string_view from, std::string_view to, const std::string& text) {
  SCOPED_TRACE(to);
  expect_refused(changed_text(from, to), text);
}

std::string document_with_value(std::string_view json) { return changed_text(R"("step":3)", str_cat("\"x\":", json)); }

Value parse_value(std::string_view json) { return parse_metadata_parts(document_with_value(json)).values.at(0).value; }

void expect_value_refused(std::string_view json, const std::string& text) {
  SCOPED_TRACE(json.substr(0, 100));
  expect_refused(document_with_value(json), text);
}

TEST(MetadataParser, Document_GivesItsParts) {
  const CheckpointParts parts = parse_metadata_parts(kMetadataText);
  EXPECT_EQ(parts.save_id, "0123456789abcdef");
  EXPECT_EQ(parts.files, (std::vector<StoredFile>{{"a", 64}}));
  StoredTensor tensor("w", DType::kF32, {2, 2});
  tensor.add_chunk({{0, 0}, {1, 2}}, 0, 8, "", std::vector<uint32_t>{1});
  tensor.add_chunk({{1, 0}, {1, 2}}, 0, 16, "w.1", std::vector<uint32_t>{2});
  EXPECT_EQ(parts.tensors, std::vector{tensor});
  EXPECT_EQ(parts.values, (std::vector<NamedValue>{{"step", Value(int64_t{3})}}));
  EXPECT_TRUE(parts.structure.is_none());
}

TEST(MetadataParser, FieldsInAnyOrderAndWhiteSpace_AreNoMatter) {
  const std::string document =
      "{ \"format\" :\n\"hyper_parallel.checkpoint\",\t\"version\": 1,\r\n"
      R"("structure":null,"values":{"step":3},"tensors":{"w":{"crc32c":[1,2],"tensor_keys":["","w.1"],)"
      R"("chunks":[[0,8,0,0,1,2],[0,16,1,0,1,2]],"shape":[2,2],"dtype":"F32"}},"files":[["a",64]],)"
      R"("save_id":"0123456789abcdef"})"
      " \n";
  EXPECT_EQ(parse_metadata_parts(document), parse_metadata_parts(kMetadataText));
}

TEST(MetadataParser, WithoutTensorKeys_ChunksHaveTheTensorsName) {
  const CheckpointParts parts = parse_metadata_parts(changed_text(R"("tensor_keys":["","w.1"],)", ""));
  EXPECT_EQ(parts.tensors[0].chunk(1).key, "w");
}

TEST(MetadataParser, DocumentThatEndsAtAnyByte_IsRefused) {
  for (size_t size = 0; size < kMetadataText.size(); ++size) {
    expect_refused(std::string(kMetadataText.substr(0, size)), size == 0 ? "found nothing" : "the text is not JSON at");
  }
}

TEST(MetadataParser, AnyByteMissing_IsRefusedOrAnotherDocument) {
  for (size_t at = 0; at < kMetadataText.size(); ++at) {
    std::string document(kMetadataText);
    document.erase(at, 1);
    try {
      EXPECT_NE(parse_metadata_parts(document), parse_metadata_parts(kMetadataText)) << at;
    } catch (const Error& error) {
      const bool expected = error.code() == ErrorCode::kDataLoss || error.code() == ErrorCode::kInvalidArgument;
      EXPECT_TRUE(expected) << error.what();
    }
  }
}

TEST(MetadataParser, TextThatIsNotJson_IsRefusedWithItsPlace) {
  const std::string end = str_cat("the text is not JSON at its byte ", kMetadataText.size() + 1, ": ");
  expect_refused(std::string(kMetadataText) + "x", end);
  expect_refused(std::string(kMetadataText) + "{}", end);
  expect_refused("\xef\xbb\xbf" + std::string(kMetadataText),
                 "must be a JSON object and begin with '{', found '\\xef'");
  expect_refused(std::string(kMetadataText) + '\0',
                 str_cat("the text is not JSON: it holds a zero byte at ", kMetadataText.size()));
  expect_refused(R"("step")",
                 "\"st\xff"
                 "ep\"",
                 "the text is not JSON at its byte ");
  expect_refused(R"("step")", R"("st\ud800ep")", "the text is not JSON at its byte ");
  expect_refused("3}", "3,}", "the text is not JSON at its byte ");
  expect_refused("[2,2]", "[2,NaN]", "the text is not JSON at its byte ");
  expect_refused(R"("step":3)", R"("step":03)", "the text is not JSON at its byte ");
  expect_refused(R"("step":3)", R"("step":1e999)", "the text is not JSON at its byte ");
}

TEST(MetadataParser, DeepNesting_IsRefusedWithoutRecursion) {
  const std::string brackets(100'000, '[');
  expect_refused(brackets, "the metadata must be a JSON object and begin with '{', found '['");
  expect_refused("{\"format\":" + brackets, "the format must be text, found a list");
  expect_refused("[2,2]", brackets, "tensor 'w' shape must be a list of integers from 0 to 2^63-1, found a list");
  expect_value_refused(brackets, "value 'x' is nested deeper than 64 levels");
  std::string dicts;
  for (int i = 0; i < 100'000; ++i) dicts += R"({"dict":[[1,)";
  expect_value_refused(dicts, "value 'x' is nested deeper than 64 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"tuple":)";
  expect_value_refused(objects, "value 'x': a 'tuple' must be a list, found an object");
  std::string complex;
  for (int i = 0; i < 100'000; ++i) complex += R"({"complex":[)";
  expect_value_refused(complex + "1", "value 'x': a 'complex' must be a list of 2 floats, found 1");
}

TEST(MetadataParser, DocumentThatIsNoObject_IsRefused) {
  for (const char* document : {"[]", "null", "1", "\"text\"", "true"}) {
    expect_refused(document, "the metadata must be a JSON object and begin with '{'");
  }
}

TEST(MetadataParser, OtherFormat_IsRefused) {
  expect_refused("hyper_parallel.checkpoint", "other", "the format is 'other', not 'hyper_parallel.checkpoint'");
  expect_refused(R"("hyper_parallel.checkpoint")", "1", "the format must be text, found 1");
}

TEST(MetadataParser, UnknownVersion_IsRefusedWithTheNewestThatIsKnown) {
  expect_refused(R"("version":1)", R"("version":2)",
                 "the metadata has version 2, but this library reads versions up to 1");
  expect_refused(R"("version":1)", R"("version":0)", "the metadata has version 0");
  expect_refused(R"("version":1)", R"("version":2,"what":"is new")", "the metadata has version 2");
  expect_refused(R"("version":1)", R"("version":-1)", "the version must be an integer from 0 to 2^63-1, found -1");
  expect_refused(R"("version":1)", R"("version":1.0)", "the version must be an integer from 0 to 2^63-1, found 1.0");
  expect_refused(R"("version":1)", R"("version":"1")", "the version must be an integer from 0 to 2^63-1, found '1'");
}

TEST(MetadataParser, FormatAndVersionThatDoNotComeFirst_AreRefused) {
  const std::string late = "too early: 'format' must come first and 'version' second";
  expect_refused(R"({"version":1,"format":"hyper_parallel.checkpoint"})", late);
  expect_refused(R"({"format":"hyper_parallel.checkpoint","save_id":"0123456789abcdef","version":1})", late);
}

TEST(MetadataParser, FieldTwice_IsRefused) {
  expect_refused(R"("version":1)", R"("version":1,"version":1)", "the metadata has the field 'version' twice");
  expect_refused(R"("version":1)", R"("version":1,"format":"hyper_parallel.checkpoint")",
                 "the metadata has the field 'format' twice");
  expect_refused(R"("structure":null)", R"("structure":null,"structure":null)", "the field 'structure' twice");
  expect_refused(R"("structure":null)", R"("structure":null,"tensors":{})", "the field 'tensors' twice");
  expect_refused(R"("dtype":"F32")", R"("dtype":"F32","dtype":"F32")", "tensor 'w' has the field 'dtype' twice");
  expect_refused(R"("dtype":"F32")", R"("dtype":"F32","\u0064type":"F32")", "tensor 'w' has the field 'dtype' twice");
  expect_refused(R"("shape":[2,2])", R"("shape":[2,2],"shape":[2,2])", "tensor 'w' has the field 'shape' twice");
}

TEST(MetadataParser, UnknownField_IsRefused) {
  expect_refused(R"("structure")", R"("structures")", "the metadata has the unknown field 'structures'");
  expect_refused(R"("dtype":)", R"("Dtype":)", "tensor 'w' has the unknown field 'Dtype'");
}

TEST(MetadataParser, MissingField_IsRefused) {
  expect_refused("{}", "the metadata lacks the field 'format'");
  expect_refused(R"(,"structure":null)", "", "the metadata lacks the field 'structure'");
  expect_refused(R"("values":{"step":3},)", "", "the metadata lacks the field 'values'");
  expect_refused(R"("save_id":"0123456789abcdef",)", "", "the metadata lacks the field 'save_id'");
  expect_refused(R"("dtype":"F32",)", "", "tensor 'w' lacks the field 'dtype'");
  expect_refused(R"(,"crc32c":[1,2])", "", "tensor 'w' lacks the field 'crc32c'");
}

TEST(MetadataParser, Files_AreListsOfNameAndSize) {
  const std::string rule = "the files must be a list, each [name, bytes], found ";
  expect_refused(R"([["a",64]])", "{}", rule + "an object");
  expect_refused(R"(["a",64])", "3", rule + "3");
  expect_refused(R"(["a",64])", "[]", rule + "the end of the list");
  expect_refused(R"(["a",64])", R"(["a"])", rule + "the end of the list");
  expect_refused(R"(["a",64])", R"(["a",64,1])", rule + "1");
  expect_refused(R"(["a",64])", "[64,64]", rule + "64");
  expect_refused(R"(["a",64])", R"(["a","64"])", rule + "'64'");
  expect_refused(R"(["a",64])", R"(["a",64.0])", rule + "64.0");
  expect_refused(R"(["a",64])", R"(["a",-1])", rule + "-1");
  expect_refused(R"(["a",64])", R"(["a",18446744073709551616])", rule + "18446744073709551616");
  expect_refused(R"(["a",64])", R"(["a",9223372036854775808])", rule + "9223372036854775808");
}

TEST(MetadataParser, Tensors_AreObjectsOfObjects) {
  const std::string tensors = R"({"w":{"dtype":"F32","shape":[2,2],"chunks":[[0,8,0,0,1,2],[0,16,1,0,1,2]],)"
                              R"("tensor_keys":["","w.1"],"crc32c":[1,2]}})";
  expect_refused(tensors, "[]", "the tensors must be an object, found a list");
  expect_refused(tensors, R"({"w":null})", "tensor 'w' must be an object, found null");
  expect_refused(R"({"step":3})", "3", "the values must be an object, found 3");
  expect_refused(R"("F32")", "32", "tensor 'w' dtype must be text, found 32");
  expect_refused(R"("F32")", R"("f32")", "tensor 'w' has the unknown dtype 'f32'");
  expect_refused(R"("0123456789abcdef")", "12", "the save_id must be text, found 12");
}

TEST(MetadataParser, Shape_IsAListOfIntegersOfInt64) {
  const std::string rule = "tensor 'w' shape must be a list of integers from 0 to 2^63-1, found ";
  for (const auto& [dim, found] : {std::pair("2.0", "2.0"),
                                   {"-2", "-2"},
                                   {"-0", "-0"},
                                   {"\"2\"", "'2'"},
                                   {"null", "null"},
                                   {"true", "true"},
                                   {"{}", "an object"},
                                   {"2e0", "2e0"},
                                   {"18446744073709551616", "18446744073709551616"},
                                   {"9223372036854775808", "9223372036854775808"}}) {
    expect_refused("[2,2]", str_cat("[2,", dim, "]"), rule + found);
  }
  expect_refused("[2,2]", "2", rule + "2");
}

TEST(MetadataParser, Chunks_AreListsOfAsManyIntegersAsTheShapeNeeds) {
  const std::string rule = "tensor 'w' chunks must be a list of lists of integers from 0 to 2^63-1, found ";
  expect_refused("[0,8,0,0,1,2]", "3", rule + "3");
  expect_refused("[0,8,0,0,1,2]", "[0,8.0,0,0,1,2]", rule + "8.0");
  expect_refused("[0,8,0,0,1,2]", "[0,-8,0,0,1,2]", rule + "-8");
  expect_refused("[0,8,0,0,1,2]", "[0,18446744073709551616,0,0,1,2]", rule + "18446744073709551616");
  expect_refused("[0,8,0,0,1,2]", "[0,8,0,0,1]", "tensor 'w' has chunks of 5 and of 6 integers");
  expect_refused("[0,8,0,0,1,2]", "[]", "tensor 'w' has chunks of 0 and of 6 integers");
  expect_refused("[2,2]", "[2,2,1]", "tensor 'w' has chunks of 6 integers, but its shape (2, 2, 1) needs 8");
}

TEST(MetadataParser, TensorKeys_AreOneForEachChunk) {
  expect_refused(R"(["","w.1"])", R"(["w.1"])", "tensor 'w' has 1 tensor_keys, but 2 chunks");
  expect_refused(R"(["","w.1"])", R"(["","w.1",""])", "tensor 'w' has 3 tensor_keys, but 2 chunks");
  expect_refused(R"(["","w.1"])", R"(["",1])", "tensor 'w' tensor_keys must be a list of text, found 1");
}

TEST(MetadataParser, EmptyTensorKeys_AreThoseOfNoChunks) {
  expect_refused(R"(["","w.1"])", "[]", "tensor 'w' has 0 tensor_keys, but 2 chunks");
}

TEST(MetadataParser, Checksums_AreOneForEachBlock) {
  expect_refused("[1,2]}", "[1]}", "tensor 'w' has 1 checksums, too few for the blocks of its 2 chunks");
  expect_refused("[1,2]}", "[1,2,3]}", "tensor 'w' has 3 checksums, 1 more than its 2 chunks have blocks");
  const std::string rule = "tensor 'w' crc32c must be a list of integers from 0 to 2^32-1, found ";
  expect_refused("[1,2]}", "[1,4294967296]}", rule + "4294967296");
  expect_refused("[1,2]}", "[1,-2]}", rule + "-2");
  expect_refused("[1,2]}", "[1,2.0]}", rule + "2.0");
  EXPECT_NO_THROW(parse_metadata_parts(changed_text("[1,2]}", "[1,4294967295]}")));
}

TEST(MetadataParserValue, EverySample_ComesBack) {
  for (const Value& value : value_samples()) {
    std::string json;
    append_json_value(json, value);
    EXPECT_EQ(parse_value(json), value) << json;
  }
  std::string deepest;
  append_json_value(deepest, nested_lists(kMaxValueDepth));
  EXPECT_EQ(parse_value(deepest), nested_lists(kMaxValueDepth));
}

TEST(MetadataParserValue, IntegerOutsideInt64_IsRefused) {
  const std::string text = ", which int64 cannot hold";
  for (const std::string number : {"18446744073709551616", "9223372036854775808", "-9223372036854775809", "-0"}) {
    expect_value_refused(number, str_cat("value 'x' must be a value, found the integer ", number, text));
    expect_value_refused(str_cat("[", number, "]"),
                         str_cat("an item must be a value, found the integer ", number, text));
  }
}

TEST(MetadataParserValue, ObjectThatIsNoKnownKind_IsRefused) {
  expect_value_refused("{}", "value 'x': an object must have one field, found none");
  expect_value_refused(R"({"set":[]})", "value 'x': 'set' is not one of the kinds 'int', 'float', ");
  expect_value_refused(R"({"tuple":[],"tuple":[]})",
                       "value 'x': an object must have one field, found another, 'tuple'");
  expect_value_refused(R"({"int":"9223372036854775808","b":1})", "found another, 'b'");
}

TEST(MetadataParserValue, TaggedContentOfAnotherKind_IsRefused) {
  const std::string int_rule = "value 'x': an 'int' must be text of digits, found ";
  expect_value_refused(R"({"int":9})", int_rule + "9");
  expect_value_refused(R"({"int":[]})", int_rule + "a list");
  expect_value_refused(R"({"int":{}})", int_rule + "an object");
  expect_value_refused(R"({"int":9223372036854775808})", int_rule + "the integer 9223372036854775808");
  expect_value_refused(R"({"float":1.5})", "value 'x': a 'float' must be one of 'nan', 'inf', '-inf', and ");
  for (const char* text :
       {"Inf", "1.5", "", "nan:", "nan:7ff8000000000000", "nan:7ff0000000000000", "nan:7FF8000000000001",
        "nan:7ff80000000000010", "nan:xff8000000000001", "nan:07ff8000000000001"}) {
    expect_value_refused(str_cat(R"({"float":")", text, R"("})"), "value 'x': a 'float' must be one of ");
  }
  const std::string bytes_rule = "value 'x': 'bytes' must be text in base64, found ";
  expect_value_refused(R"({"bytes":"a"})", bytes_rule + "'a'");
  expect_value_refused(R"({"bytes":[1]})", bytes_rule + "a list");
  expect_value_refused(R"({"bytes":null})", bytes_rule + "None");
  expect_value_refused(R"({"tuple":"x"})", "value 'x': a 'tuple' must be a list, found 'x'");
  const std::string complex_rule = "value 'x': a 'complex' must be a list of 2 floats, found ";
  expect_value_refused(R"({"complex":1.5})", complex_rule + "1.5");
  expect_value_refused(R"({"complex":[]})", complex_rule + "a list of 0");
  expect_value_refused(R"({"complex":[1.5]})", complex_rule + "a list of 1");
  expect_value_refused(R"({"complex":[1.5,1.5,1.5]})", complex_rule + "a list of 3");
  expect_value_refused(R"({"complex":[1.5,1]})", complex_rule + "1");
  expect_value_refused(R"({"complex":[1.5,[]]})", complex_rule + "a list");
}

TEST(MetadataParserValue, DictThatIsNoListOfPairs_IsRefused) {
  const std::string rule = "value 'x': a 'dict' must be a list of pairs, each a list of key and value, found ";
  expect_value_refused(R"({"dict":{}})", rule + "an object");
  expect_value_refused(R"({"dict":"x"})", rule + "'x'");
  expect_value_refused(R"({"dict":[1]})", rule + "1");
  expect_value_refused(R"({"dict":["x"]})", rule + "'x'");
  expect_value_refused(R"({"dict":[{}]})", rule + "an object");
  expect_value_refused(R"({"dict":[[]]})", rule + "a list of 0");
  expect_value_refused(R"({"dict":[[1]]})", rule + "a list of 1");
  expect_value_refused(R"({"dict":[[1,2,3]]})", rule + "a list of 3");
}

TEST(MetadataParserValue, FaultInTheStructure_NamesIt) {
  expect_refused(R"("structure":null)", R"("structure":{"list":[]})", "the structure: 'list' is not one of the kinds ");
}

}  // namespace
}  // namespace hyper_parallel
