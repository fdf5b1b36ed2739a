# ks_embed_page(PAGE OUT) writes the C++ file OUT that defines tools/serve/page.h: the page as a
# string, its entity tag, and a Content-Security-Policy that allows only its own style and script.
function(ks_base64 out hex) # of 64 hexadecimal digits
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(REGEX MATCHALL "..." groups "${hex}00") # 12 bits are two digits of base64
  set(text "")
  foreach(group IN LISTS groups)
    math(EXPR high "0x${group} / 64")
    math(EXPR low "0x${group} % 64")
    string(SUBSTRING ${digits} ${high} 1 high)
    string(SUBSTRING ${digits} ${low} 1 low)
    string(APPEND text ${high}${low})
  endforeach()
  string(REGEX REPLACE "A$" "=" text ${text}) # the last digit is padding
  set(${out} ${text} PARENT_SCOPE)
endfunction()

function(ks_hash_element out page name)
  string(FIND "${page}" "<${name}>" begin)
  string(FIND "${page}" "<${name}>" last REVERSE)
  string(FIND "${page}" "</${name}>" end)
  if(begin EQUAL -1 OR end LESS begin OR NOT begin EQUAL last)
    message(FATAL_ERROR "the page needs one <${name}> element without attributes")
  endif()
  string(LENGTH "<${name}>" tag)
  math(EXPR begin "${begin} + ${tag}")
  math(EXPR length "${end} - ${begin}")
  string(SUBSTRING "${page}" ${begin} ${length} text)
  string(SHA256 hex "${text}")
  ks_base64(hash ${hex})
  set(${out} "'sha256-${hash}'" PARENT_SCOPE)
endfunction()

function(ks_embed_page file out)
  file(READ ${file} page)
  string(REPLACE "\r\n" "\n" page "${page}") # as browsers do before they hash
  string(FIND "${page}" ")page\"" delimiter)
  if(NOT delimiter EQUAL -1)
    message(FATAL_ERROR "${file} contains the end of a C++ raw string, )page\"")
  endif()
  ks_hash_element(style "${page}" style)
  ks_hash_element(script "${page}" script)
  string(SHA256 tag "${page}")
  string(SUBSTRING ${tag} 0 16 tag)
  string(CONCAT policy "default-src 'none'; style-src ${style}; script-src ${script}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'")
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT [[
#include "tools/serve/page.h"
namespace ks
{
const char kPage[] = R"page(@page@)page";
const size_t kPageBytes = sizeof kPage - 1;
const char kPageTag[] = R"("@tag@")";
const char kPagePolicy[] = "@policy@";
}
]])
endfunction()
