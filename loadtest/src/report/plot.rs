//! Plots as inline SVG: they need no script and take their colours from the page's style.

use std::fmt::Write as _;

/// Size of a plot, in SVG units.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 190.0;
/// Margins for the axes: left, right, top, bottom.
const MARGIN: [f64; 4] = [46.0, 12.0, 24.0, 32.0];
/// Bars of a histogram.
const BARS: usize = 30;

/// A named line or cloud of points.
#[derive(Debug)]
pub struct Curve<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// Points, in the units of the axes.
    pub points: Vec<(f64, f64)>,
    /// True for a line, false for a cloud of points.
    pub joined: bool,
}

/// Draws a histogram of `sorted` up to its 99.5th percentile; empty without values.
pub fn histogram(title: &str, unit: &str, sorted: &[f64]) -> String {
    let Some(&last) = sorted.get((sorted.len() * 995 / 1_000).min(sorted.len().saturating_sub(1))) else {
        return String::new();
    };
    let most = if last > 0.0 { last } else { 1.0 };
    let mut counts = [0_u32; BARS];
    for value in sorted {
        counts[((value / most * BARS as f64) as usize).min(BARS - 1)] += 1;
    }
    let highest = f64::from(counts.iter().copied().max().unwrap_or(1).max(1));
    let mut frame = PlotFrame::new(title, (0.0, most), (0.0, highest));
    for (bar, count) in counts.iter().enumerate() {
        let (left, top) = frame.at(most * bar as f64 / BARS as f64, f64::from(*count));
        let (right, bottom) = frame.at(most * (bar + 1) as f64 / BARS as f64, 0.0);
        let (width, height) = (right - left - 1.0, bottom - top);
        frame.draw(&format!(
            "<rect class=\"c0\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }
    frame.finish(unit, "")
}

/// Draws curves over time in seconds; empty without points.
pub fn series(title: &str, unit: &str, curves: &[Curve<'_>]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    if points().next().is_none() {
        return String::new();
    }
    let most = |values: &mut dyn Iterator<Item = f64>| {
        let most = values.fold(0.0, f64::max);
        if most > 0.0 { most * 1.05 } else { 1.0 }
    };
    let (right, top) = (most(&mut points().map(|point| point.0)), most(&mut points().map(|point| point.1)));
    let mut frame = PlotFrame::new(title, (0.0, right), (0.0, top));
    for (colour, curve) in curves.iter().enumerate() {
        let places: Vec<(f64, f64)> = curve.points.iter().map(|(x, y)| frame.at(*x, *y)).collect();
        if curve.joined {
            let line: String = places.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
            frame.draw(&format!("<polyline class=\"l{colour}\" points=\"{}\"/>", line.trim_end()));
        } else {
            for (x, y) in places {
                frame.draw(&format!("<circle class=\"c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.8\"/>"));
            }
        }
    }
    let names: Vec<&str> = curves.iter().map(|curve| curve.name).collect();
    frame.finish("s", &legend(&names, unit))
}

/// Draws consecutive stages as bars; lengths are in ms.
pub fn waterfall(title: &str, stages: &[(String, f64)]) -> String {
    let total: f64 = stages.iter().map(|(_, length)| length).sum();
    if total <= 0.0 {
        return String::new();
    }
    let row = 24.0;
    let height = row * stages.len() as f64 + 40.0;
    let (left, width) = (170.0, WIDTH - 170.0 - 70.0);
    let mut svg = open(title, height);
    let mut begun = 0.0;
    for (index, (name, length)) in stages.iter().enumerate() {
        let (x, y) = (left + begun / total * width, 30.0 + row * index as f64);
        let bar = (length / total * width).max(1.0);
        let middle = y + 13.0;
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{middle:.1}\" class=\"end\">{}</text>", left - 8.0, escape(name));
        let _ =
            write!(svg, "<rect class=\"c{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"18\"/>", index % 4);
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{middle:.1}\">{length:.1} ms</text>", x + bar + 5.0);
        begun += length;
    }
    svg + "</svg>"
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn legend(names: &[&str], unit: &str) -> String {
    let entries = names.iter().enumerate();
    let entries: String =
        entries.map(|(n, name)| format!("<tspan class=\"t{n}\" dx=\"8\">{}</tspan>", escape(name))).collect();
    format!(
        "<text x=\"{}\" y=\"16\" class=\"end\">{entries}<tspan dx=\"8\">{}</tspan></text>",
        WIDTH - MARGIN[1],
        escape(unit)
    )
}

fn open(title: &str, height: f64) -> String {
    let name = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{name}\"><text x=\"4\" y=\"16\" class=\"title\">{name}</text>"
    )
}

/// A plot with axes, and the mapping of values to SVG coordinates.
struct PlotFrame {
    svg: String,
    x: (f64, f64),
    y: (f64, f64),
}

impl PlotFrame {
    fn new(title: &str, x: (f64, f64), y: (f64, f64)) -> Self {
        Self { svg: open(title, HEIGHT), x, y }
    }

    /// Maps a point to SVG coordinates.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let [left, right, top, bottom] = MARGIN;
        let across = (x - self.x.0) / (self.x.1 - self.x.0);
        let up = (y - self.y.0) / (self.y.1 - self.y.0);
        (left + across * (WIDTH - left - right), HEIGHT - bottom - up * (HEIGHT - top - bottom))
    }

    fn draw(&mut self, shape: &str) {
        self.svg.push_str(shape);
    }

    fn finish(mut self, unit: &str, legend: &str) -> String {
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let (x, y) = (self.x.1 * share, self.y.1 * share);
            let (place, bottom) = self.at(x, 0.0);
            let (left, height) = self.at(0.0, y);
            let text = format!(
                "<text x=\"{place:.1}\" y=\"{:.1}\" class=\"mid\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>\
                 <line class=\"grid\" x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{height:.1}\" y2=\"{height:.1}\"/>",
                bottom + 14.0,
                number(x),
                left - 5.0,
                height + 4.0,
                number(y),
                WIDTH - MARGIN[1],
            );
            self.draw(&text);
        }
        let _ =
            write!(self.svg, "<text x=\"{}\" y=\"{}\" class=\"end\">{unit}</text>", WIDTH - MARGIN[1], HEIGHT - 4.0);
        self.svg + legend + "</svg>"
    }
}

/// Formats a number with at most two decimals, fewer for larger values.
fn number(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.abs() < 1.0 {
        format!("{value:.2}")
    } else if value.abs() < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_counts_every_value() {
        let svg = histogram("a <b>", "ms", &[1.0, 1.0, 2.0, 30.0]);
        assert!(svg.contains("a &lt;b&gt;") && svg.ends_with("</svg>"));
        let heights: Vec<f64> = svg
            .split("height=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .filter(|height| *height > 0.0)
            .collect();
        // The highest bar counts both values of 1; the others are half as high.
        assert_eq!(heights.len(), 3, "{heights:?}");
        assert!((heights[0] - 2.0 * heights[1]).abs() < 0.2, "{heights:?}");
        assert_eq!(histogram("empty", "ms", &[]), "");
    }

    #[test]
    fn waterfall_bars_follow_each_other() {
        let svg = waterfall("w", &[("one".into(), 30.0), ("two".into(), 10.0)]);
        let bars: Vec<f64> = svg
            .split("<rect")
            .skip(1)
            .flat_map(|rect| {
                ["x=\"", "width=\""]
                    .map(|name| rect.split(name).nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            })
            .collect();
        assert!((bars[0] + bars[1] - bars[2]).abs() < 0.2, "{bars:?}");
        assert!((bars[1] - 3.0 * bars[3]).abs() < 0.2, "{bars:?}");
    }
}
