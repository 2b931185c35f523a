#include "synthesis/linear_program.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <ClpSimplex.hpp>
#include <CoinError.hpp>
#include <CoinPackedMatrix.hpp>
#pragma GCC diagnostic pop

namespace weft {

std::size_t LinearProgram::add_variable(double cost, double least, double most) {
  cost_.push_back(cost);
  least_.push_back(least);
  most_.push_back(most);
  return cost_.size() - 1;
}

void LinearProgram::add_row(Terms terms, double lower, double upper) {
  rows_.push_back({std::move(terms), lower, upper});
}

Result<std::vector<double>> LinearProgram::solve() const {
  try {
    const auto bound = [](double value) {
      return value == kUnbounded ? COIN_DBL_MAX : value == -kUnbounded ? -COIN_DBL_MAX : value;
    };
    CoinPackedMatrix matrix(false, 0, 0);  // by rows
    matrix.setDimensions(0, static_cast<int>(cost_.size()));
    std::vector<double> least, most, lower, upper;
    for (std::size_t v = 0; v < cost_.size(); ++v) {
      least.push_back(bound(least_[v]));
      most.push_back(bound(most_[v]));
    }
    for (const Row& row : rows_) {
      std::vector<int> columns;
      std::vector<double> values;
      for (const auto& [variable, value] : row.terms) {
        columns.push_back(static_cast<int>(variable));
        values.push_back(value);
      }
      matrix.appendRow(static_cast<int>(columns.size()), columns.data(), values.data());
      lower.push_back(bound(row.lower));
      upper.push_back(bound(row.upper));
    }
    ClpSimplex model;
    model.setLogLevel(0);
    model.loadProblem(matrix, least.data(), most.data(), cost_.data(), lower.data(), upper.data());
    model.dual();
    if (!model.isProvenOptimal()) return error("the linear programme has no solution (CLP status {})", model.status());
    const double* const solution = model.primalColumnSolution();
    return std::vector<double>(solution, solution + cost_.size());
  } catch (const CoinError& problem) {
    return error("CLP: {} in {}", problem.message(), problem.methodName());
  }
}

}  // namespace weft
