#include "mixed/mixed.h"

#include <gtest/gtest.h>
