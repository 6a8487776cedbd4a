//! A picture of the throughput over time, in SVG: a small chart for each measurement, the outbox and its floor in one. Written
//! by hand and without any script; colours are those of light and of dark backgrounds.

use std::fmt::Write as _;

use super::report::Series;
use super::run::{STEP, number};
use crate::format;

const WIDTH: f64 = 640.0;
const CHART: f64 = 60.0;
/// The chart with its title.
const ROW: f64 = 96.0;
const LEFT: f64 = 16.0;
const TOP: f64 = 40.0;

pub(super) fn draw(all: &[Series]) -> String {
    let height = TOP + ROW * number(all.len() as u64) + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>text{{fill:#888}}.ours{{stroke:#2a9d5c}}.floor{{stroke:#999;stroke-dasharray:4 3}}\
         polyline{{fill:none;stroke-width:2}}line{{stroke:#ccc}}</style>\n\
         <text x=\"{LEFT}\" y=\"20\">messages a second over time: the outbox, and its floor (dashed)</text>\n"
    );
    for (series, nth) in all.iter().zip(0_u32..) {
        chart(&mut svg, series, TOP + ROW * f64::from(nth));
    }
    svg.push_str("</svg>\n");
    svg
}

fn chart(svg: &mut String, series: &Series, top: f64) {
    let lines = [("floor", &series.floor), ("ours", &series.ours)];
    let highest =
        lines.iter().flat_map(|(_, points)| points.iter()).fold(1.0_f64, |highest, point| highest.max(*point));
    let longest = lines.iter().map(|(_, points)| points.len()).max().unwrap_or(0).max(2);
    let base = top + 16.0 + CHART;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, rounded for people")]
    let words = format!(
        "{}: up to {}/s, {:.1} s",
        escaped(&series.name),
        format::count(highest as u64),
        number(longest as u64) * STEP.as_secs_f64()
    );
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.0}\">{words}</text>\n<line x1=\"{LEFT}\" y1=\"{base}\" x2=\"{:.0}\" y2=\"{base}\"/>\n",
        top + 10.0,
        WIDTH - LEFT
    );
    let step = (WIDTH - 2.0 * LEFT) / number(longest as u64 - 1);
    for (class, points) in lines {
        let points: Vec<String> = points
            .iter()
            .zip(0_u32..)
            .map(|(point, nth)| format!("{:.1},{:.1}", LEFT + step * f64::from(nth), base - CHART * point / highest))
            .collect();
        let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_for_each_measurement() {
        let series = Series { name: "a < b".to_owned(), ours: vec![0.0, 10.0], floor: vec![20.0] };
        let svg = draw(&[series.clone(), series]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert!(svg.contains("a &lt; b: up to 20/s") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
