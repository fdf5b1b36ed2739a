// Charts as inline SVG for `report`: no script, no other file, readable in light, in dark and on
// paper.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

std::string html_text(const std::string& text); // with &, <, > and " escaped
std::string rounded(double number, int digits);
const char* chart_colour(size_t nth);

struct ChartPoint {
    double x, y, low, high; // low and high: of y
    uint32_t series;
};

struct Chart {
    std::string x_title, y_title;
    bool percent = true; // y is a share of 1; else it is logarithmic, and what is less than kLeastY
                         // stands there
    std::vector<std::string>
        series; // numbered from 1 in the chart and its legend; some may have no points
    std::vector<ChartPoint> points;

    static constexpr double kLeastY = 1e-4;
    std::string svg() const; // x is logarithmic
};

struct HeatMap {
    std::string title;
    std::vector<std::string> rows, columns;
    std::vector<std::vector<double>> values; // 0 to 1; negative: nothing was measured

    std::string svg() const;
};

} // namespace ks
