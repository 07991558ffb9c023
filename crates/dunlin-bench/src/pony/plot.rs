//! Line charts as SVG: axes with ticks, linear or logarithmic, a legend, several series on a light ground.

use std::fmt::Write;

/// A chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// The parameters of the measurement.
    pub(super) below: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// A horizontal line, and its label.
    pub(super) goal: Option<(f64, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Whether the ticks are 1 B, 1 KB and so on.
    pub(super) is_bytes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Starts at zero.
    Linear,
    /// Starts at a power of ten; points of zero or less are left out.
    Log,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether the line is dashed, as for references.
    pub(super) is_dashed: bool,
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
/// The frame's margins.
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 40.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = HEIGHT - 130.0;
/// The height of a line of the legend, which is in two columns below the chart.
const LINE: f64 = 20.0;

/// Colours that colour-blind people can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Draws a chart.
pub(super) fn svg(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let goal = chart.goal.iter().map(|(goal, _)| *goal);
    let x = Ticks::of(&chart.x, points().map(|point| point.0), LEFT, RIGHT);
    let y = Ticks::of(&chart.y, points().map(|point| point.1).chain(goal), BOTTOM, TOP);
    let mut out = Drawing(String::new());
    out.line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">"
    ));
    out.line(&format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"));
    out.text(LEFT, 28.0, "font-size=\"18\" font-weight=\"bold\"", &chart.title);
    out.text(LEFT, 50.0, "fill=\"#666\"", &chart.below);
    for (value, label) in &x.ticks {
        let at = x.place(*value);
        out.stroke((at, TOP), (at, BOTTOM), "stroke=\"#e4e4e4\"");
        out.text(at, BOTTOM + 18.0, "text-anchor=\"middle\"", label);
    }
    for (value, label) in &y.ticks {
        let at = y.place(*value);
        out.stroke((LEFT, at), (RIGHT, at), "stroke=\"#e4e4e4\"");
        out.text(LEFT - 8.0, at + 4.0, "text-anchor=\"end\"", label);
    }
    out.stroke((LEFT, BOTTOM), (RIGHT, BOTTOM), "stroke=\"#222\"");
    out.stroke((LEFT, TOP), (LEFT, BOTTOM), "stroke=\"#222\"");
    out.text(f64::midpoint(LEFT, RIGHT), BOTTOM + 38.0, "text-anchor=\"middle\"", &chart.x.label);
    let middle = f64::midpoint(TOP, BOTTOM);
    out.text(20.0, middle, &format!("text-anchor=\"middle\" transform=\"rotate(-90 20 {middle})\""), &chart.y.label);
    if let Some((goal, says)) = &chart.goal {
        let at = y.place(*goal);
        out.stroke((LEFT, at), (RIGHT, at), "stroke=\"#c00\" stroke-dasharray=\"2 3\"");
        out.text(LEFT + 6.0, at - 5.0, "fill=\"#c00\"", says);
    }
    // Each series keeps its colour, whichever others are missing.
    let drawn = chart.series.iter().enumerate().filter(|(_, series)| !series.points.is_empty());
    for (slot, (number, series)) in drawn.enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = if series.is_dashed { " stroke-dasharray=\"7 5\"" } else { "" };
        let mut places: Vec<(f64, f64)> = series.points.clone();
        places.retain(|point| x.has(point.0) && y.has(point.1));
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        let places: Vec<(f64, f64)> = places.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        out.line(&format!("<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"));
        places.iter().for_each(|place| out.mark(*place, number, colour));
        let column = LEFT + (slot % 2) as f64 * (RIGHT - LEFT) / 2.0;
        let line = BOTTOM + 64.0 + (slot / 2) as f64 * LINE;
        out.stroke(
            (column, line - 4.0),
            (column + 30.0, line - 4.0),
            &format!("stroke=\"{colour}\" stroke-width=\"2\"{dash}"),
        );
        out.mark((column + 15.0, line - 4.0), number, colour);
        out.text(column + 38.0, line, "", &series.name);
    }
    out.line("</svg>");
    out.0
}

struct Drawing(String);

impl Drawing {
    fn line(&mut self, line: &str) {
        self.0 += line;
        self.0 += "\n";
    }

    fn text(&mut self, x: f64, y: f64, style: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.line(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>"));
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.line(&format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"));
    }

    /// A disc, a square, a triangle or a diamond, so that colour is not the only distinction between series.
    fn mark(&mut self, (x, y): (f64, f64), number: usize, colour: &str) {
        let corners: &[(f64, f64)] = match number % 4 {
            0 => return self.line(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>")),
            1 => &[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)],
            2 => &[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)],
            _ => &[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)],
        };
        let mut points = String::new();
        for (right, down) in corners {
            // Writing to a string cannot fail.
            let _ = write!(points, "{:.1},{:.1} ", x + right, y + down);
        }
        self.line(&format!("<polygon points=\"{}\" fill=\"{colour}\"/>", points.trim_end()));
    }
}

/// An axis with its ticks, between two positions.
struct Ticks {
    scale: Scale,
    /// The first and the last tick are at its ends.
    ticks: Vec<(f64, String)>,
    from: f64,
    to: f64,
}

impl Ticks {
    fn of(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let is_log = axis.scale == Scale::Log;
        let values: Vec<f64> = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0)).collect();
        let greatest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = values.iter().copied().fold(greatest, f64::min);
        let ticks: Vec<f64> = if is_log {
            let (first, last) = (least.log10().floor() as i32, greatest.log10().ceil() as i32);
            (first..=last.max(first + 1)).map(|power| 10_f64.powi(power)).collect()
        } else {
            let step = nice(greatest / 6.0);
            (0..=(greatest / step).ceil().max(1.0) as u32).map(|tick| f64::from(tick) * step).collect()
        };
        let label = |tick: f64| if axis.is_bytes { bytes(tick as usize) } else { number(tick) };
        Self { scale: axis.scale, ticks: ticks.into_iter().map(|tick| (tick, label(tick))).collect(), from, to }
    }

    fn has(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    fn place(&self, value: f64) -> f64 {
        let along = |value: f64| if self.scale == Scale::Log { value.log10() } else { value };
        let (first, last) = (along(self.ticks[0].0), along(self.ticks[self.ticks.len() - 1].0));
        self.from + (along(value) - first) / (last - first) * (self.to - self.from)
    }
}

/// 1, 2 or 5 times a power of ten, and not less than `step`.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= step * 0.999).unwrap_or(10.0)
}

/// A tick's label: 0.001, 20, 100,000.
fn number(tick: f64) -> String {
    if tick.fract().abs() > 1e-9 && tick < 1_000.0 {
        // A power of ten, or a number with few digits.
        return format!("{tick:.6}").trim_end_matches('0').to_owned();
    }
    let digits = format!("{tick:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Bytes in the usual notation: 1 B, 50 KB, 1 MB. 1 KB is 1000 B.
pub(super) fn bytes(size: usize) -> String {
    match size {
        0..1_000 => format!("{size} B"),
        1_000..1_000_000 => format!("{} KB", size as f64 / 1e3),
        _ => format!("{} MB", size as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis { label: "size < & >".to_owned(), scale, is_bytes: false }
    }

    fn chart(scale: Scale, points: &[(f64, f64)]) -> Chart {
        let series = |name: &str| Series { name: name.to_owned(), points: points.to_vec(), is_dashed: name == "a" };
        Chart {
            title: "A \"title\" & more".to_owned(),
            below: "below".to_owned(),
            x: axis(scale),
            y: axis(scale),
            series: ["a", "b", "c", "d", "e"].map(series).to_vec(),
            goal: Some((1.8, "goal".to_owned())),
        }
    }

    #[test]
    fn ticks_enclose_all_values() {
        for (scale, values) in
            [(Scale::Linear, vec![3.0, 25.0]), (Scale::Log, vec![0.04, 7_000.0]), (Scale::Log, vec![1.0])]
        {
            let ticks = Ticks::of(&axis(scale), values.iter().copied(), 100.0, 500.0);
            for value in values {
                let place = ticks.place(value);
                assert!((100.0..=500.0).contains(&place), "{value} at {place}, {:?}", ticks.ticks);
            }
        }
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten_at_even_distances() {
        let ticks = Ticks::of(&axis(Scale::Log), [0.02, 30.0].into_iter(), 0.0, 400.0);
        let labels: Vec<&str> = ticks.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100"]);
        assert!((ticks.place(1.0) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn ticks_have_round_steps_and_grouped_digits() {
        assert_eq!(["0.001", "0.5", "20", "100,000", "1,000,000"], [0.001, 0.5, 20.0, 1e5, 1e6].map(number));
        assert_eq!([nice(0.9), nice(1.1), nice(3.0), nice(60.0)], [1.0, 2.0, 5.0, 100.0]);
    }

    #[test]
    fn svg_is_well_formed_and_has_every_point() {
        for scale in [Scale::Linear, Scale::Log] {
            let svg = svg(&chart(scale, &[(1.0, 2.0), (10.0, 0.5), (100.0, 3.0)]));
            let document = roxmltree::Document::parse(&svg).expect("well-formed");
            let lines: Vec<_> = document.descendants().filter(|node| node.has_tag_name("polyline")).collect();
            assert_eq!(lines.len(), 5);
            for line in lines {
                let points = line.attribute("points").expect("each line has points");
                assert_eq!(points.split(' ').count(), 3);
                assert!(!points.contains("NaN") && !points.contains("inf"));
            }
        }
    }

    #[test]
    fn plot_omits_points_without_logarithm_and_accepts_an_empty_chart() {
        let svg = svg(&chart(Scale::Log, &[(0.0, 2.0), (10.0, -1.0), (100.0, 3.0), (1.0, f64::NAN)]));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let empty = super::svg(&Chart { goal: None, ..chart(Scale::Linear, &[]) });
        assert!(roxmltree::Document::parse(&empty).is_ok() && !empty.contains("NaN") && !empty.contains("inf"));
    }
}
