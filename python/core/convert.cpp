#include "core/convert.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace weft::python {

py::str to_text(std::string_view text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (!made) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

py::object to_python(const nlohmann::json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::object: {
      py::dict made;
      for (const auto& [key, value] : json.items()) made[to_text(key)] = to_python(value);
      return made;
    }
    case nlohmann::json::value_t::array: {
      py::list made(json.size());
      for (std::size_t i = 0; i < json.size(); ++i) made[i] = to_python(json[i]);
      return made;
    }
    case nlohmann::json::value_t::string:
      return to_text(json.get_ref<const std::string&>());
    case nlohmann::json::value_t::boolean:
      return py::bool_(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
      return py::int_(json.get<std::int64_t>());
    case nlohmann::json::value_t::number_unsigned:
      return py::int_(json.get<std::uint64_t>());
    case nlohmann::json::value_t::number_float:
      return py::float_(json.get<double>());
    default:
      return py::none();
  }
}

std::string text_of(const py::handle& object, std::string_view what) {
  if (!py::isinstance<py::str>(object) && !py::hasattr(object, "__fspath__"))
    throw py::type_error(fmt::format("{}: a str or a path, not {}", what, Py_TYPE(object.ptr())->tp_name));
  PyObject* path = PyOS_FSPath(object.ptr());
  if (!path) throw py::error_already_set();
  const auto held = py::reinterpret_steal<py::object>(path);
  if (!py::isinstance<py::str>(held))
    throw py::type_error(fmt::format("{}: a str or a path, not {}", what, Py_TYPE(held.ptr())->tp_name));
  const auto text = held.cast<std::string>();
  if (text.find('\0') != std::string::npos) throw py::value_error(fmt::format("{}: has a null character", what));
  return text;
}

std::vector<std::string> texts_of(const py::handle& object, std::string_view what) {
  std::vector<std::string> texts;
  if (py::isinstance<py::str>(object) || py::hasattr(object, "__fspath__")) {
    texts.push_back(text_of(object, what));
  } else if (py::isinstance<py::sequence>(object)) {
    for (const py::handle each : py::reinterpret_borrow<py::sequence>(object)) texts.push_back(text_of(each, what));
  } else {
    throw py::type_error(
        fmt::format("{}: a str, a path or a list of them, not {}", what, Py_TYPE(object.ptr())->tp_name));
  }
  return texts;
}

}  // namespace weft::python
