// The codecs with a file in codecs/, which reads an octet at a time. Other codecs are read value by
// value (row_value in cache.glsl).
#define FAST_CODECS(X) X(q8) X(q4) X(turbo4) X(turbo3) X(turbo2) X(turbo2v) X(polar) X(kiviv)
#define FAST_GROUP_CODECS(X) X(kivi) X(kivi2)
#include "shaders/codecs/kivi.glsl"
#include "shaders/codecs/polar.glsl"
#include "shaders/codecs/q4.glsl"
#include "shaders/codecs/q8.glsl"
#include "shaders/codecs/turbo.glsl"
