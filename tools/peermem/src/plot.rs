// SPDX-License-Identifier: GPL-2.0

//! A small plot of times by size, both logarithmic, as SVG.

use std::fmt::Write as _;

use crate::units;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 60.0;
/// Colour and dashes of the first, second ... series.
const STYLES: [(&str, &str); 4] = [
    ("#1f5fa8", ""),
    ("#1f5fa8", "6 4"),
    ("#b5541c", ""),
    ("#b5541c", "6 4"),
];

/// Some points that belong together.
pub struct Series {
    /// What the legend says.
    pub name: &'static str,
    /// Size in bytes, and time in ns.
    pub points: Vec<(u64, u64)>,
}

/// A plot of at most four series.
pub struct Plot {
    /// The text above.
    pub title: String,
    /// The lines.
    pub series: Vec<Series>,
}

/// A range of values on a logarithmic axis that goes from one place to another.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = u64> + Clone, base: f64, from: f64, to: f64) -> Self {
        let lowest = values.clone().min().unwrap_or(1).max(1) as f64;
        let highest = values.max().unwrap_or(1).max(1) as f64;
        let low = lowest.log(base).floor();
        let high = highest.log(base).ceil().max(low + 1.0);
        Self {
            low: low * base.ln(),
            high: high * base.ln(),
            from,
            to,
        }
    }

    fn place(&self, value: u64) -> f64 {
        let share = ((value.max(1) as f64).ln() - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// The powers of a base on it, not more than fit.
    fn ticks(&self, base: u64, most: usize) -> Vec<u64> {
        let within = |tick: &u64| {
            let tick = (*tick as f64).ln();
            tick >= self.low - 1e-9 && tick <= self.high + 1e-9
        };
        let all: Vec<u64> = std::iter::successors(Some(1u64), |tick| tick.checked_mul(base))
            .filter(within)
            .collect();
        let step = all.len().div_ceil(most).max(1);
        all.into_iter().step_by(step).collect()
    }
}

impl Plot {
    /// The file.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::new(points().map(|p| p.0), 2.0, LEFT, WIDTH - RIGHT);
        let y = Axis::new(points().map(|p| p.1), 10.0, HEIGHT - BOTTOM, TOP);
        let mut svg = head(&self.title);
        grid(&mut svg, &x, &y);
        for (index, series) in self.series.iter().enumerate() {
            line(&mut svg, index, series, &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn head(title: &str) -> String {
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(&mut svg, WIDTH / 2.0, 24.0, "middle", &title);
    svg
}

fn grid(svg: &mut String, x: &Axis, y: &Axis) {
    for size in x.ticks(2, 12) {
        let at = x.place(size);
        rule(svg, (at, TOP), (at, HEIGHT - BOTTOM));
        let label = units::bytes(size).replace(".0", "");
        text(svg, at, HEIGHT - BOTTOM + 20.0, "middle", &label);
    }
    for time in y.ticks(10, 10) {
        let at = y.place(time);
        rule(svg, (LEFT, at), (WIDTH - RIGHT, at));
        let label = units::nanoseconds(time).replace(".0", "");
        text(svg, LEFT - 8.0, at + 4.0, "end", &label);
    }
    text(svg, WIDTH / 2.0, HEIGHT - 14.0, "middle", "size");
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    push(
        svg,
        format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
            from.0, from.1, to.0, to.1
        ),
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    push(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"),
    );
}

fn line(svg: &mut String, index: usize, series: &Series, x: &Axis, y: &Axis) {
    let (colour, dashes) = STYLES[index % STYLES.len()];
    let style = format!(
        "fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\""
    );
    let points: Vec<String> = series
        .points
        .iter()
        .map(|(size, time)| format!("{:.1},{:.1}", x.place(*size), y.place(*time)))
        .collect();
    push(
        svg,
        format_args!("<polyline points=\"{}\" {style}/>", points.join(" ")),
    );
    legend(svg, index, series.name, &style);
}

/// All of them in one line, above the lines that they explain.
fn legend(svg: &mut String, index: usize, name: &str, style: &str) {
    let (x, y) = (LEFT + 170.0 * index as f64, TOP - 20.0);
    push(
        svg,
        format_args!("<polyline points=\"{x},{y} {},{y}\" {style}/>", x + 30.0),
    );
    text(svg, x + 36.0, y + 4.0, "start", name);
}

fn push(svg: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(svg, "{element}").expect("a string takes everything");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_within_the_axes() {
        let axis = Axis::new([4096, 1 << 24].into_iter(), 2.0, LEFT, WIDTH - RIGHT);
        assert_eq!(axis.place(4096), LEFT);
        assert_eq!(axis.place(1 << 24), WIDTH - RIGHT);
        assert_eq!(axis.ticks(2, 100).len(), 13);
        assert!(axis.ticks(2, 5).len() <= 5);
    }

    #[test]
    fn one_point_makes_a_plot() {
        let plot = Plot {
            title: "a < b".to_owned(),
            series: vec![Series {
                name: "x",
                points: vec![(65536, 1000)],
            }],
        };
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
