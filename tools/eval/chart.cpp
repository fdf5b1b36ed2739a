#include "tools/eval/chart.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// Colours for colour-blind readers (Okabe and Ito). The points are also numbered.
static const char* const kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#b8860b", "#56b4e9", "#7a5195", "#666666"};

static const char* colour(size_t series)
{
    return kColours[series % std::size(kColours)];
}

std::string html_text(const std::string& text)
{
    std::string out;
    for (char c : text) {
        const char* name = c == '&'   ? "&amp;"
                           : c == '<' ? "&lt;"
                           : c == '>' ? "&gt;"
                           : c == '"' ? "&quot;"
                                      : nullptr;
        if (name)
            out += name;
        else
            out += c;
    }
    return out;
}

std::string rounded(double number, int digits)
{
    char text[40];
    snprintf(text, sizeof text, "%.*f", digits, number);
    return text;
}

namespace
{

constexpr double kWidth = 720, kHeight = 380, kLeft = 62, kRight = 16, kTop = 14, kBottom = 52;

// Clamps a value to the range of an axis: a record may hold any number. NaN becomes `least`.
double clamp_to(double value, double least, double most)
{
    return value > least ? std::min(value, most) : least;
}

double byte_log(double bytes)
{
    return std::log2(clamp_to(bytes, 1, 1e15));
}

double y_log(double value)
{
    return std::log10(clamp_to(value, Chart::kLeastY, 1e6));
}

// The ranges of both axes: x in log2, y in log10 if log_y.
struct Axes {
    double x_low, x_high, y_low, y_high;
    bool log_y;

    double x(double value) const
    {
        return kLeft + (byte_log(value) - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight);
    }
    double y(double value) const
    {
        const double at = log_y ? y_log(value) : value;
        return kHeight - kBottom - (at - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
    }
};

std::string line(double x1, double y1, double x2, double y2, const char* kind)
{
    return "<line class='" + std::string(kind) + "' x1='" + rounded(x1, 1) + "' y1='" +
           rounded(y1, 1) + "' x2='" + rounded(x2, 1) + "' y2='" + rounded(y2, 1) + "'/>";
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = "")
{
    return "<text x='" + rounded(x, 1) + "' y='" + rounded(y, 1) + "' text-anchor='" + anchor +
           "'" + more + ">" + html_text(text) + "</text>";
}

std::string size_text(double bytes)
{
    if (bytes < 1024) return rounded(bytes, 0) + " B";
    return rounded(bytes / 1024, bytes < 10240 ? 1 : 0) + " KiB";
}

std::string axes_svg(const Axes& axes, const Chart& chart)
{
    std::string svg;
    const double step = axes.log_y ? 1 : (axes.y_high - axes.y_low) / 5;
    for (double at = axes.y_low; at < axes.y_high + step / 2; at += step) {
        const double value = axes.log_y ? std::pow(10, at) : at;
        svg += line(kLeft, axes.y(value), kWidth - kRight, axes.y(value), "grid");
        svg += text_at(kLeft - 6, axes.y(value) + 4, "end",
                       chart.percent ? rounded(100 * value, 0) + "%"
                                     : rounded(value, at < 0 ? int(-at) : 0));
    }
    const double tick = axes.x_high - axes.x_low > 4 ? 1 : 0.5;
    for (double at = std::ceil(axes.x_low / tick) * tick; at <= axes.x_high; at += tick) {
        const double value = std::exp2(at);
        svg += line(axes.x(value), kTop, axes.x(value), kHeight - kBottom, "grid");
        svg += text_at(axes.x(value), kHeight - kBottom + 18, "middle", size_text(value));
    }
    svg += text_at((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", chart.x_title);
    const std::string rotated =
        " transform='rotate(-90 14 " + rounded((kTop + kHeight - kBottom) / 2, 1) + ")'";
    return svg + text_at(14, (kTop + kHeight - kBottom) / 2, "middle", chart.y_title, rotated);
}

std::string legend(const std::vector<std::string>& series, const std::vector<bool>& shown)
{
    std::string html = "<ol class='legend'>";
    for (size_t i = 0; i < series.size(); i++)
        if (shown[i])
            html += std::string("<li><b style='background:") + colour(i) + "'>" +
                    std::to_string(i + 1) + "</b> <code>" + html_text(series[i]) + "</code></li>";
    return html + "</ol>\n";
}

struct Place {
    double x, y;
};

// The places of points. A point that would cover another moves aside, right and left alternately.
std::vector<Place> spread(const Axes& axes, const std::vector<ChartPoint>& points)
{
    constexpr double kApart = 19;
    std::vector<Place> places;
    for (const ChartPoint& p : points) {
        Place place{axes.x(p.x), axes.y(p.y)};
        auto covers = [&](const Place& other) {
            return std::hypot(other.x - place.x, other.y - place.y) < kApart - 1;
        };
        for (int nth = 1; std::any_of(places.begin(), places.end(), covers) && nth < 60; nth++)
            place.x = axes.x(p.x) + kApart * ((nth + 1) / 2) * (nth % 2 ? 1 : -1);
        places.push_back(place);
    }
    return places;
}

} // namespace

std::string Chart::svg() const
{
    Axes axes{1e300, -1e300, percent ? 0. : 1e300, percent ? 1. : -1e300, !percent};
    for (const ChartPoint& p : points) {
        axes.x_low = std::min(axes.x_low, byte_log(p.x) - 0.2);
        axes.x_high = std::max(axes.x_high, byte_log(p.x) + 0.2);
        if (percent) continue;
        const double y = y_log(p.y);
        axes.y_low = std::min(axes.y_low, std::floor(y));
        axes.y_high = std::max(axes.y_high, std::max(std::ceil(y), axes.y_low + 1));
    }
    std::string svg = "<svg viewBox='0 0 " + rounded(kWidth, 0) + " " + rounded(kHeight, 0) +
                      "' role='img'>" + axes_svg(axes, *this);
    const std::vector<Place> places = spread(axes, points);
    for (size_t i = 0; i < points.size(); i++) {
        const ChartPoint& p = points[i];
        if (p.low < p.high)
            svg += line(places[i].x, axes.y(std::max(p.low, axes.y_low)), places[i].x,
                        axes.y(std::min(p.high, axes.y_high)), "bar");
    }
    for (size_t i = 0; i < points.size(); i++) {
        const ChartPoint& p = points[i];
        svg += "<circle cx='" + rounded(places[i].x, 1) + "' cy='" + rounded(places[i].y, 1) +
               "' r='9' fill='" + colour(p.series) + "'><title>" + html_text(series[p.series]) +
               ": " + size_text(p.x) + " per token, " +
               (percent ? rounded(100 * p.y, 1) + "%" : rounded(p.y, 4)) + "</title></circle>";
        svg += text_at(places[i].x, places[i].y + 4, "middle", std::to_string(p.series + 1),
                       " class='number'");
    }
    std::vector<bool> shown(series.size());
    for (const ChartPoint& p : points) shown[p.series] = true;
    return svg + "</svg>\n" + legend(series, shown);
}

std::string BarChart::svg() const
{
    constexpr double kRow = 30;
    const double bottom = kTop + kRow * double(bars.size()), width = kWidth - 2 * kLeft - kRight;
    const auto x = [&](double value) {
        return 2 * kLeft + clamp_to(value, 0, most) / most * width;
    };
    std::string svg = "<svg viewBox='0 0 " + rounded(kWidth, 0) + " " +
                      rounded(bottom + kBottom, 0) + "' role='img'>";
    for (int tick = 0; tick <= 4; tick++) {
        const double at = most * tick / 4;
        svg += line(x(at), kTop, x(at), bottom, "grid") +
               text_at(x(at), bottom + 18, "middle", rounded(at, 0));
    }
    svg += text_at(x(most / 2), bottom + 40, "middle", x_title);
    std::vector<bool> shown(series.size());
    for (size_t i = 0; i < bars.size(); i++) {
        const double y = kTop + kRow * double(i);
        svg += text_at(2 * kLeft - 8, y + 19, "end", bars[i].label);
        double begin = 0;
        for (const Part& part : bars[i].parts) {
            svg += "<rect x='" + rounded(x(begin), 1) + "' y='" + rounded(y + 3, 1) + "' width='" +
                   rounded(x(part.end) - x(begin), 1) + "' height='24' fill='" +
                   colour(part.series) + "'><title>" + html_text(series[part.series]) + ", to " +
                   rounded(part.end, 0) + "</title></rect>";
            if (x(part.end) - x(begin) > 20)
                svg += text_at((x(begin) + x(part.end)) / 2, y + 19, "middle",
                               std::to_string(part.series + 1), " class='number'");
            begin = part.end;
            shown[part.series] = true;
        }
    }
    return svg + "</svg>\n" + legend(series, shown);
}

std::string HeatMap::svg() const
{
    constexpr double kCell = 44, kLabel = 92, kHead = 40;
    const double width = kLabel + kCell * double(columns.size()) + 8,
                 height = kHead + 26 * double(rows.size()) + 6;
    std::string svg = "<figure><figcaption><code>" + html_text(title) +
                      "</code></figcaption><svg viewBox='0 0 " + rounded(width, 0) + " " +
                      rounded(height, 0) + "' style='max-width:" + rounded(width, 0) +
                      "px' role='img'>";
    for (size_t c = 0; c < columns.size(); c++)
        svg += text_at(kLabel + kCell * (double(c) + 0.5), kHead - 8, "middle", columns[c]);
    for (size_t r = 0; r < rows.size(); r++) {
        const double y = kHead + 26 * double(r);
        svg += text_at(kLabel - 8, y + 17, "end", rows[r]);
        for (size_t c = 0; c < columns.size(); c++) {
            const double value = values[r][c];
            if (value < 0) continue;
            // From orange over light yellow to blue. Each cell also shows its number.
            const int red = int(value < 0.5 ? 213 + 60 * value : 410 - 340 * value),
                      green = int(110 + 200 * std::min(value, 0.55)), blue = int(40 + 160 * value);
            svg += "<rect x='" + rounded(kLabel + kCell * double(c) + 1, 1) + "' y='" +
                   rounded(y + 1, 1) + "' width='" + rounded(kCell - 2, 1) +
                   "' height='24' fill='rgb(" + std::to_string(std::min(red, 255)) + "," +
                   std::to_string(green) + "," + std::to_string(blue) + ")'/>" +
                   text_at(kLabel + kCell * (double(c) + 0.5), y + 18, "middle",
                           rounded(100 * value, 0), " class='cell'");
        }
    }
    return svg + "</svg></figure>\n";
}

} // namespace ks
