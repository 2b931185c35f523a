// Predicted against measured as a drawing: one page of HTML with an SVG in it, no scripts.
#include <algorithm>
#include <array>
#include <cmath>

#include "validate/validate.h"

namespace weft {
namespace {

constexpr double kSide = 640, kMargin = 60;
constexpr std::array<std::string_view, 10> kColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd",
                                                       "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"};

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// Both axes are logarithms of seconds, whole decades from end to end.
struct Scale {
  double low = 0, high = 1;

  double at(double seconds) const { return kMargin + (std::log10(seconds) - low) / (high - low) * kSide; }
  double x(double seconds) const { return at(seconds); }
  double y(double seconds) const { return 2 * kMargin + kSide - at(seconds); }
};

Scale scale_of(const std::vector<Prediction>& rows) {
  Scale scale{1e9, -1e9};
  for (const Prediction& row : rows)
    for (double seconds : {row.measured_s, row.predicted_s}) {
      scale.low = std::min(scale.low, std::floor(std::log10(seconds)));
      scale.high = std::max(scale.high, std::ceil(std::log10(seconds)));
    }
  if (!(scale.high > scale.low)) return {-3, 3};
  return scale;
}

}  // namespace

std::string plot_of(const Validation& validation) {
  const Scale scale = scale_of(validation.predictions);
  const double low = std::pow(10, scale.low), high = std::pow(10, scale.high);
  const double all = kSide + 2 * kMargin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {0}\" width=\"{0}\" height=\"{0}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      all);
  for (int decade = static_cast<int>(scale.low); decade <= static_cast<int>(scale.high); ++decade) {
    const double seconds = std::pow(10, decade), x = scale.x(seconds), y = scale.y(seconds);
    svg += fmt::format("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}M{1:.1f} {3:.1f}H{2:.1f}\" stroke=\"#ddd\"/>\n", x, kMargin,
                       kMargin + kSide, y);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g} s</text>\n", x,
                       kMargin + kSide + 18, seconds);
    svg +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g} s</text>\n", kMargin - 6, y + 4, seconds);
  }
  // Equal, and 10 % to either side.
  for (double factor : {1.0, 1.1, 1 / 1.1})
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"#888\"{}/>\n", scale.x(low),
                       scale.y(low * factor), scale.x(high), scale.y(high * factor),
                       factor == 1 ? "" : " stroke-dasharray=\"3 4\"");
  std::string legend;
  for (std::size_t f = 0; f < validation.files.size(); ++f) {
    const std::string& file = validation.files[f].name;
    const std::string_view colour = kColours[f % kColours.size()];
    for (const Prediction& row : validation.predictions) {
      if (row.file != file) continue;
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\" fill-opacity=\"{}\" stroke=\"{}\"><title>{}:{} {} "
          "{} "
          "{:+.1f} %</title></circle>\n",
          scale.x(row.measured_s), scale.y(row.predicted_s), colour, row.timed ? "0.6" : "0", colour,
          escaped(file.substr(file.rfind('/') + 1)), row.line, escaped(row.model), escaped(row.request.strategy),
          100 * row.error);
    }
    legend += fmt::format("<li style=\"color:{}\">{}: {} rows, {:.1f} %</li>\n", colour,
                          escaped(file.substr(file.rfind('/') + 1)), validation.files[f].rows,
                          100 * validation.files[f].mape);
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">measured</text>\n", all / 2, all - 12);
  svg += fmt::format(
      "<text x=\"14\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 "
      "{0:.1f})\">predicted</text>\n</svg>\n",
      all / 2);
  return "<!doctype html>\n<meta charset=\"utf-8\">\n<title>predicted against measured</title>\n<body "
         "style=\"font-family:sans-serif\">\n<h1>Time of a step, predicted against measured</h1>\n" +
         svg + "<ul>\n" + legend +
         "</ul>\n<p>Circles without filling: the framework is not modelled, only its scaling is scored.</p>\n";
}

}  // namespace weft
