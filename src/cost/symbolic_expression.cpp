#include "cost/symbolic_expression.h"

#include <fmt/format.h>

#include "base/check.h"

namespace weft {
namespace {

__int128 greatest_common(__int128 a, __int128 b) {
  if (a < 0) a = -a;
  while (b != 0) {
    const __int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

__int128 times(__int128 a, __int128 b) {
  __int128 product = 0;
  WEFT_CHECK(!__builtin_mul_overflow(a, b, &product), "a volume beyond 127 bits");
  return product;
}

std::string print(__int128 whole) {
  if (whole < 0) return "-" + print(-whole);
  std::string digits;
  do digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(whole % 10)));
  while ((whole /= 10) > 0);
  return digits;
}

}  // namespace

Rational Rational::of(__int128 numerator, __int128 denominator) {
  WEFT_CHECK(denominator != 0, "a rational number over 0");
  const __int128 common = greatest_common(numerator, denominator < 0 ? -denominator : denominator);
  Rational made;
  made.numerator = (denominator < 0 ? -numerator : numerator) / (common == 0 ? 1 : common);
  made.denominator = (denominator < 0 ? -denominator : denominator) / (common == 0 ? 1 : common);
  return made;
}

Rational operator+(const Rational& a, const Rational& b) {
  const __int128 common = greatest_common(a.denominator, b.denominator);
  return Rational::of(times(a.numerator, b.denominator / common) + times(b.numerator, a.denominator / common),
                      times(a.denominator, b.denominator / common));
}

Rational operator-(const Rational& a, const Rational& b) { return a + Rational(-1) * b; }

Rational operator*(const Rational& a, const Rational& b) {
  const Rational left = Rational::of(a.numerator, b.denominator), right = Rational::of(b.numerator, a.denominator);
  return Rational::of(times(left.numerator, right.numerator), times(left.denominator, right.denominator));
}

bool operator<(const Rational& a, const Rational& b) { return (a - b).numerator < 0; }

std::string print(const Rational& number) {
  return number.is_whole() ? print(number.numerator)
                           : fmt::format("{}/{}", print(number.numerator), print(number.denominator));
}

Expression::Expression(Rational number) {
  if (number.numerator != 0) terms_.emplace(Factors{}, number);
}

Expression Expression::symbol(const std::string& name, int power) {
  Expression made;
  Factors factors;
  if (power != 0) factors.powers[name] = power;
  made.terms_.emplace(std::move(factors), 1);
  return made;
}

Expression Expression::less_one(const std::string& name) {
  Expression made;
  made.terms_.emplace(Factors{{}, {{name, 1}}}, 1);
  return made;
}

Expression& Expression::operator+=(const Expression& other) {
  for (const auto& [factors, number] : other.terms_) {
    const auto [found, added] = terms_.try_emplace(factors, number);
    if (added) continue;
    found->second = found->second + number;
    if (found->second.numerator == 0) terms_.erase(found);
  }
  return *this;
}

Expression operator-(const Expression& a, const Expression& b) { return a + Expression(-1) * b; }

Expression operator*(const Expression& a, const Expression& b) {
  Expression made;
  for (const auto& [left, number] : a.terms_)
    for (const auto& [right, other] : b.terms_) {
      Expression::Factors factors = left;
      for (const auto& [name, power] : right.powers)
        if ((factors.powers[name] += power) == 0) factors.powers.erase(name);
      for (const auto& [name, power] : right.less_one) factors.less_one[name] += power;
      Expression term;
      term.terms_.emplace(std::move(factors), number * other);
      made += term;
    }
  return made;
}

Rational Expression::at(const Bindings& bindings) const {
  const auto value = [&](const std::string& name) {
    const auto found = bindings.find(name);
    WEFT_CHECK(found != bindings.end(), "symbol {} stands for nothing", name);
    return found->second;
  };
  Rational sum;
  for (const auto& [factors, number] : terms_) {
    Rational product = number;
    for (const auto& [name, power] : factors.powers)
      for (int i = 0; i < (power < 0 ? -power : power); ++i)
        product = product * (power > 0 ? Rational(value(name)) : Rational::of(1, value(name)));
    for (const auto& [name, power] : factors.less_one)
      for (int i = 0; i < power; ++i) product = product * Rational(value(name) - 1);
    sum = sum + product;
  }
  return sum;
}

std::string print(const Expression& expression) {
  std::string text;
  for (const auto& [factors, number] : expression.terms_) {
    const bool negative = number.numerator < 0;
    std::vector<std::string> above, below;
    const __int128 numerator = negative ? -number.numerator : number.numerator;
    if (numerator != 1) above.push_back(print(numerator));
    if (number.denominator != 1) below.push_back(print(number.denominator));
    const auto power_of = [](const std::string& name, int power) {
      return power == 1 ? name : fmt::format("{}^{}", name, power);
    };
    for (const auto& [name, power] : factors.less_one) above.push_back(power_of(fmt::format("({}−1)", name), power));
    for (const auto& [name, power] : factors.powers)
      (power > 0 ? above : below).push_back(power_of(name, power > 0 ? power : -power));
    std::string term = above.empty() ? "1" : fmt::format("{}", fmt::join(above, "·"));
    if (below.size() == 1) term += "/" + below.front();
    if (below.size() > 1) term += fmt::format("/({})", fmt::join(below, "·"));
    text += text.empty() ? (negative ? "−" : "") : (negative ? " − " : " + ");
    text += term;
  }
  return text.empty() ? "0" : text;
}

}  // namespace weft
