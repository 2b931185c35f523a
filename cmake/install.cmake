# What `cmake --install` puts where. Components: `weft`, for those who use it; `weft-dev`, the libraries, headers and CMake
# package for programs of one's own (find_package(weft), weft::search, #include "search/find_plan.h").
include(GNUInstallDirs)

function(weft_install_library name)
  set_target_properties(weft_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(weft_${name} PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/weft>)
  install(TARGETS weft_${name} EXPORT weft-targets ARCHIVE COMPONENT weft-dev)
endfunction()
