// Volumes as exact expressions in sizes and degrees: sums of products such as 2·(tp−1)/tp·b·s·n/dp.
//
// A term is a rational number times powers of symbols and of symbols minus one. The form is closed under sums and
// products, so expressions add, multiply, print and evaluate without rounding.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft {

// A fraction in lowest terms with positive denominator. Overflow beyond 127 bits is a failed check.
struct Rational {
  __int128 numerator = 0, denominator = 1;

  Rational() = default;
  Rational(std::int64_t whole) : numerator(whole) {}
  static Rational of(__int128 numerator, __int128 denominator);

  bool is_whole() const { return denominator == 1; }
  double value() const { return static_cast<double>(numerator) / static_cast<double>(denominator); }
  bool operator==(const Rational&) const = default;
};
Rational operator+(const Rational& a, const Rational& b);
Rational operator-(const Rational& a, const Rational& b);
Rational operator*(const Rational& a, const Rational& b);
bool operator<(const Rational& a, const Rational& b);
std::string print(const Rational& number);  // "3", "7/2"

// The values of the symbols of an expression: positive integers.
using Bindings = std::map<std::string, std::int64_t>;

class Expression {
 public:
  Expression() = default;  // 0
  Expression(Rational number);
  Expression(std::int64_t number) : Expression(Rational(number)) {}
  static Expression symbol(const std::string& name, int power = 1);
  static Expression less_one(const std::string& name);  // name − 1

  Expression& operator+=(const Expression& other);
  friend Expression operator+(Expression a, const Expression& b) { return a += b; }
  friend Expression operator-(const Expression& a, const Expression& b);
  friend Expression operator*(const Expression& a, const Expression& b);

  // Every symbol must be bound.
  Rational at(const Bindings& bindings) const;
  bool operator==(const Expression&) const = default;

  // "2·(tp−1)·b·s·n/(tp·dp) + 4·h"; "0".
  friend std::string print(const Expression& expression);

 private:
  struct Factors {
    std::map<std::string, int> powers, less_one;  // none is 0

    auto operator<=>(const Factors&) const = default;
  };
  std::map<Factors, Rational> terms_;  // none is 0
};

}  // namespace weft
