# The Vulkan backend. The build needs headers and glslangValidator; the program loads libvulkan at
# run time. Each shader becomes an array of SPIR-V words in a table
# (backends/vulkan/vulkan_pipelines.h). A line "// variants: LIST" compiles it once per weight
# format of that list in kernels/common/formats.h.
find_path(VULKAN_INCLUDE vulkan/vulkan_core.h)
find_program(GLSLANG glslangValidator)
set(KS_VULKAN_FOUND OFF)
if(NOT KS_VULKAN STREQUAL "OFF" AND VULKAN_INCLUDE AND GLSLANG)
  set(KS_VULKAN_FOUND ON)
elseif(NOT KS_VULKAN STREQUAL "OFF" AND NOT KS_VULKAN STREQUAL "AUTO")
  message(FATAL_ERROR "KS_VULKAN needs vulkan/vulkan_core.h and glslangValidator: "
    "apt-get install libvulkan-dev glslang-tools")
endif()
function(ks_shaders out)
  set(list ${CMAKE_CURRENT_SOURCE_DIR}/kernels/common/formats.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(READ ${list} FORMATS)
  string(REGEX REPLACE ".*#define FORMATS" "" FORMATS "${FORMATS}")
  string(REGEX MATCHALL "X\\([a-z0-9_]+\\)" FORMATS "${FORMATS}")
  list(TRANSFORM FORMATS REPLACE "X\\((.+)\\)" "\\1")
  file(GLOB sources CONFIGURE_DEPENDS shaders/*.comp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources}) # their "// " lines
  foreach(source IN LISTS sources)
    get_filename_component(op ${source} NAME_WE)
    file(STRINGS ${source} varies REGEX "^// variants: ")
    set(variants "none")
    if(varies)
      set(variants ${FORMATS})
    endif()
    if(varies MATCHES "QUANTISED")
      list(FILTER variants EXCLUDE REGEX "^b?f[0-9]+$")
    endif()
    # A line "// also with NAMES" compiles the shader once more for each NAME, as op OP_name, for
    # devices with that feature.
    file(STRINGS ${source} also REGEX "^// also with ")
    string(REGEX MATCHALL "[A-Z]+" also "${also}")
    if(NOT KS_MATRICES)
      list(REMOVE_ITEM also MATRICES)
    endif()
    set(ways "")
    foreach(variant IN LISTS variants)
      list(APPEND ways "${op}/${variant}/FORMAT_${variant}")
      foreach(name IN LISTS also)
        string(TOLOWER ${name} suffix)
        list(APPEND ways "${op}_${suffix}/${variant}/${name}")
      endforeach()
    endforeach()
    foreach(way IN LISTS ways)
      string(REPLACE "/" ";" way ${way})
      list(GET way 0 name)
      list(GET way 1 variant)
      list(GET way 2 define)
      string(REPLACE "_none" "" id ${name}_${variant})
      set(words ${CMAKE_CURRENT_BINARY_DIR}/spv/${id}.h)
      add_custom_command(OUTPUT ${words} DEPENDS ${source} DEPFILE ${words}.d VERBATIM
        COMMAND ${GLSLANG} --quiet -V --target-env vulkan1.1 -g0 -I${CMAKE_CURRENT_SOURCE_DIR}
                -DFORMAT_${variant} -D${define}
                --depfile ${words}.d --vn spv_${id} -o ${words} ${source})
      list(APPEND headers ${words})
      string(APPEND includes "#include \"${words}\"\n")
      string(REPLACE "none" "" variant ${variant})
      string(APPEND rows "    {\"${name}\", \"${variant}\", spv_${id}, sizeof spv_${id} / 4},\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT spv/shaders.cpp @ONLY CONTENT
    "#include \"backends/vulkan/vulkan_pipelines.h\"\n${includes}namespace ks
{
const VulkanShader kVulkanShaders[] = {\n${rows}};
const size_t kVulkanShaderCount = sizeof kVulkanShaders / sizeof kVulkanShaders[0];\n}\n")
  set(${out} ${CMAKE_CURRENT_BINARY_DIR}/spv/shaders.cpp ${headers} PARENT_SCOPE)
endfunction()
if(KS_VULKAN_FOUND)
  file(GLOB vulkan CONFIGURE_DEPENDS backends/vulkan/*.cpp)
  # glslang before version 13 does not know cooperative matrices. Then no device uses them.
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/spv/probe)
  file(WRITE ${probe}.comp
    "#version 450\n#extension GL_KHR_cooperative_matrix : require\nvoid main() {}\n")
  execute_process(COMMAND ${GLSLANG} -V --target-env vulkan1.1 -o ${probe}.spv ${probe}.comp
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  set(KS_MATRICES ON)
  if(failed)
    set(KS_MATRICES OFF)
  endif()
  ks_shaders(shaders)
  target_sources(ks_backends PRIVATE ${vulkan} ${shaders})
  target_include_directories(ks_registry PRIVATE ${VULKAN_INCLUDE})
  target_link_libraries(ks_backends PUBLIC ${CMAKE_DL_LIBS})
  target_compile_definitions(ks_registry PRIVATE KS_VULKAN)
  set_source_files_properties(${vulkan} ${shaders} PROPERTIES INCLUDE_DIRECTORIES ${VULKAN_INCLUDE})
endif()
