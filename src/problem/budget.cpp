#include "problem/budget.h"

namespace weft {

std::string_view name_of(StoppedBy reason) {
  switch (reason) {
    case StoppedBy::Itself:
      return "done";
    case StoppedBy::Evaluations:
      return "evaluations";
    case StoppedBy::Time:
      return "time";
    case StoppedBy::Cancelled:
      return "cancelled";
  }
  return "";
}

}  // namespace weft
