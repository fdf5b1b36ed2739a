// Finds JSON objects in what other programs print.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ks
{

// Numbers and texts by name, those of an object within it as "outer.inner"; arrays are left out. Values are as they are written,
// texts without their quotes.
using JsonMembers = std::map<std::string, std::string>;

// The outermost objects of all JSON values in a text, alone or in arrays; what is no JSON is passed over.
std::vector<JsonMembers> find_json_objects(const std::string& text);

} // namespace ks
