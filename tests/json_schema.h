// The part of JSON Schema that docs/schema uses: type, required, properties, additionalProperties: false, items.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft {

// The places where a value violates the schema, one per line; an unsupported keyword counts as one too.
inline void check_schema(const nlohmann::json& value, const nlohmann::json& schema, const std::string& at,
                         std::vector<std::string>& faults) {
  const auto is = [&](const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
           : type == "boolean" ? value.is_boolean()
                               : type == "null" && value.is_null();
  };
  for (const auto& [keyword, wanted] : schema.items()) {
    if (keyword == "$schema" || keyword == "title" || keyword == "description") continue;
    if (keyword == "type") {
      bool any = false;
      for (const auto& type : wanted.is_array() ? wanted : nlohmann::json::array({wanted})) any = any || is(type);
      if (!any) faults.push_back(at + ": not " + wanted.dump());
    } else if (keyword == "required") {
      for (const auto& key : wanted)
        if (value.is_object() && !value.contains(key)) faults.push_back(at + ": no " + key.dump());
    } else if (keyword == "properties") {
      for (const auto& [key, inner] : wanted.items())
        if (value.is_object() && value.contains(key)) check_schema(value[key], inner, at + "." + key, faults);
    } else if (keyword == "additionalProperties" && wanted == false) {
      if (value.is_object())
        for (const auto& [key, inner] : value.items())
          if (!schema["properties"].contains(key)) faults.push_back(at + ": unknown " + key);
    } else if (keyword == "items") {
      if (value.is_array())
        for (std::size_t i = 0; i < value.size(); ++i)
          check_schema(value[i], wanted, at + "[" + std::to_string(i) + "]", faults);
    } else {
      faults.push_back(at + ": the schema's '" + keyword + "' is not checked");
    }
  }
}

inline std::vector<std::string> departures(const nlohmann::json& value, const nlohmann::json& schema) {
  std::vector<std::string> faults;
  check_schema(value, schema, "$", faults);
  return faults;
}

}  // namespace weft
