//! `repartee bench size`: times one turn on this machine; prints a table and writes `target/report/size.json`.

mod concurrent;
mod options;
mod verdict;

use repartee_engine::measure::{MachineLimits, StageMeasurement, StageOutput, TurnPhase, TurnReport, measure};
use repartee_engine::{DeviceChoice, EngineConfig, Source, WeightPolicy};
use repartee_report::{Report, ReportRow};

use options::weights;
pub use options::{Routing, SizeOptions};
use verdict::{TurnSpeed, verdict};

/// Machines of the projection: number of cores and read bandwidth in bytes a second, of two and of four channels of
/// DDR5-5600.
const PROJECTED: [(usize, f64); 2] = [(8, 65e9), (16, 130e9)];

/// Measures `source` with the settings of `engine`, prints a table and writes the report.
pub fn size(options: &SizeOptions, source: &Source, engine: &EngineConfig) -> anyhow::Result<()> {
    let turn = options.turn()?;
    if !options.sessions.is_empty() || engine.device != DeviceChoice::Cpu {
        return write(options, concurrent::rows(options, source, engine, turn)?);
    }
    let engine = EngineConfig { sessions: 1, out_of_band: 0, ..engine.clone() };
    let (mut rows, mut last) = (Vec::new(), None);
    for (source, routing) in options.sources(source) {
        // On a terminal or not: a large model takes minutes.
        eprintln!("measuring the machine, then a turn three times; a large model takes minutes");
        let measured = measure(source, &engine, turn)?;
        let suffix = if routing == Some(Routing::Skewed) { "_skewed" } else { "" };
        print(&measured, &engine, routing);
        if rows.is_empty() {
            rows.extend(machine_rows(&measured.machine));
        }
        let layers = options.layers.filter(|_| routing.is_some());
        rows.extend(measured_rows(&measured, &engine, (layers, routing), suffix));
        last = layers.is_none().then(|| speed(&measured, engine.weights)).and_then(verdict);
    }
    write(options, rows)?;
    if let Some(verdict) = last {
        println!("\n{verdict}");
    }
    Ok(())
}

/// Times of the measured turn with stages in parallel.
fn speed(TurnReport { turn, parallel, .. }: &TurnReport, weights: WeightPolicy) -> TurnSpeed {
    TurnSpeed {
        heard: turn.input,
        listening: parallel.listening,
        first_sound: parallel.first_sound,
        response: parallel.whole,
        sound: parallel.sound,
        wide: weights != WeightPolicy::Int4,
    }
}

/// Prints the figures and writes the report.
fn write(options: &SizeOptions, rows: Vec<ReportRow>) -> anyhow::Result<()> {
    println!();
    repartee_report::print(&rows);
    Ok(Report::new("size", rows).write(&options.report)?)
}

fn print(measured: &TurnReport, engine: &EngineConfig, routing: Option<Routing>) {
    let TurnReport { machine, turn, stages, sequential: in_turn, .. } = measured;
    let (heard, sound) = (turn.input.as_secs_f64(), in_turn.sound.as_secs_f64());
    println!(
        "\nweights = {}, {} threads{}: {heard:.1} s heard, {} text tokens at most, {sound:.1} s of sound; stages one after another",
        weights(engine),
        machine.threads,
        match routing {
            Some(Routing::Skewed) => ", experts chosen unevenly",
            Some(_) => ", experts chosen evenly",
            None => "",
        },
        turn.text_tokens,
    );
    println!(
        "  {:<10}{:<10}{:<9}{:>6}{:>6}{:>9}{:>9}{:>9}{:>7}{:>6}{:>9}{:>6}",
        "", "stage", "rows", "steps", "rows", "s", "ms/row", "MB/step", "GB/s", "%", "GMAC/s", "%"
    );
    for row in stages {
        let (seconds, rows) = (row.took.as_secs_f64(), row.rows.max(1) as f64);
        let (reading, multiplying) = machine.lower_bound(row.products);
        let multiplies = (row.products.float_multiplies + row.products.integer_multiplies) as f64;
        println!(
            "  {:<10}{:<10}{:<9}{:>6}{:>6}{seconds:>9.2}{:>9.2}{:>9.1}{:>7.1}{:>6.0}{:>9.1}{:>6.0}",
            match row.phase {
                TurnPhase::Listening => "listening",
                TurnPhase::Answer => "answer",
            },
            row.stage,
            row.kind,
            row.steps,
            row.rows,
            1e3 * seconds / rows,
            row.products.bytes as f64 / 1e6 / row.steps.max(1) as f64,
            row.products.bytes as f64 / 1e9 / seconds,
            100.0 * reading / seconds,
            multiplies / 1e9 / seconds,
            100.0 * multiplying / seconds,
        );
    }
}

fn machine_rows(machine: &MachineLimits) -> Vec<ReportRow> {
    let threads = machine.threads;
    let read = format!(
        "read by {threads} threads, {} MiB (eight times the last cache), huge pages: {}",
        machine.read_mib, machine.huge_pages
    );
    let mut rows = vec![
        ReportRow::without_peer("machine_read_bandwidth", machine.bandwidth / 1e9, "GB/s", read),
        ReportRow::without_peer(
            "machine_float_peak",
            machine.float_peak.multiplies / 1e9,
            "GMAC/s",
            format!("{threads} threads, registers alone: {}", machine.float_peak.instruction),
        ),
    ];
    rows.extend(machine.integer_peak.map(|peak| {
        let note = format!("{threads} threads, registers alone: {}", peak.instruction);
        ReportRow::without_peer("machine_integer_peak", peak.multiplies / 1e9, "GMAC/s", note)
    }));
    rows
}

/// Totals of several stages.
#[derive(Debug, Default)]
struct Sum {
    rows: f64,
    seconds: f64,
    bytes: f64,
    multiplies: f64,
    /// Sum of the stages' minimum times in seconds: the larger of reading and multiplying.
    floor: f64,
}

fn sum<'a>(machine: &MachineLimits, stages: impl IntoIterator<Item = &'a StageMeasurement>) -> Sum {
    stages.into_iter().fold(Sum::default(), |sum, row| {
        let (reading, multiplying) = machine.lower_bound(row.products);
        Sum {
            rows: sum.rows + row.rows as f64,
            seconds: sum.seconds + row.took.as_secs_f64(),
            bytes: sum.bytes + row.products.bytes as f64,
            multiplies: sum.multiplies + (row.products.float_multiplies + row.products.integer_multiplies) as f64,
            floor: sum.floor + reading.max(multiplying),
        }
    })
}

fn measured_rows(
    measured: &TurnReport,
    engine: &EngineConfig,
    (layers, routing): (Option<usize>, Option<Routing>),
    suffix: &str,
) -> Vec<ReportRow> {
    let TurnReport { machine, turn, stages, sequential: in_turn, parallel: side_by_side, .. } = measured;
    let weights = weights(engine);
    let size = layers.map_or_else(String::new, |layers| format!("; ONLY {layers} LAYERS of each stack"));
    let published = match (routing, layers) {
        (None, _) => "loaded",
        (Some(_), Some(_)) => "cut",
        (Some(_), None) => "published",
    };
    let (heard, sound) = (turn.input.as_secs_f64(), side_by_side.sound.as_secs_f64());
    let mut rows = Vec::new();
    let mut add = |row: ReportRow| rows.push(row);
    // Decoding: at most one stage writes text, one row a token; one stage makes codec frames.
    let decoding = |makes: StageOutput| stages.iter().filter(move |row| row.kind == "decode" && row.output == makes);
    let writer = decoding(StageOutput::Text).map(|row| row.stage).next().unwrap_or_default();
    for (name, makes) in
        [(format!("{writer}_decode"), StageOutput::Text), ("codec_frame".to_owned(), StageOutput::Codes)]
    {
        let sum = sum(machine, decoding(makes));
        if sum.rows == 0.0 {
            continue;
        }
        let note = format!(
            "each of {:.0}; peer: the nearer floor; {:.1} MB of weights, {:.1} GB/s, {:.0} a second{size}",
            sum.rows,
            sum.bytes / 1e6 / sum.rows,
            sum.bytes / 1e9 / sum.seconds,
            sum.rows / sum.seconds,
        );
        let each = 1e3 / sum.rows;
        add(ReportRow::lower_is_better(
            format!("{name}_{weights}{suffix}"),
            sum.seconds * each,
            sum.floor * each,
            "ms",
            note,
        ));
        let note = format!("weights that the products of each read{size}");
        add(ReportRow::without_peer(format!("{name}_{weights}_reads{suffix}"), sum.bytes / 1e6 / sum.rows, "MB", note));
    }
    let prefill = sum(machine, stages.iter().filter(|row| row.kind == "prefill"));
    if heard > 0.0 && prefill.rows > 0.0 {
        let note = format!(
            "prefill of all stages for a second heard ({:.0} rows in all); peer: real time; {:.1} GB/s, {:.1} GMAC/s{size}",
            prefill.rows,
            prefill.bytes / 1e9 / prefill.seconds,
            prefill.multiplies / 1e9 / prefill.seconds
        );
        add(ReportRow::lower_is_better(
            format!("prefill_1s_{weights}{suffix}"),
            prefill.seconds / heard,
            1.0,
            "s",
            note,
        ));
        let note = format!("share of real time spent while listening, encoder included{size}");
        let listening = side_by_side.listening.as_secs_f64() / heard;
        add(ReportRow::lower_is_better(format!("listening_load_{weights}{suffix}"), listening, 1.0, "", note));
    }
    let note = format!("commit to first sound, {weights}, as a server runs it{size}");
    add(ReportRow::without_peer(
        format!("ttfp_{published}{suffix}"),
        1e3 * side_by_side.first_sound.as_secs_f64(),
        "ms",
        note,
    ));
    let answer: Vec<&StageMeasurement> = stages.iter().filter(|row| row.phase == TurnPhase::Answer).collect();
    let all = sum(machine, answer.iter().copied());
    let each_second = in_turn.sound.as_secs_f64();
    let note = format!(
        "{sound:.1} s of sound, as a server runs it; peer: the sum of the stages' nearer floors; {:.1} GB and {:.1} GMAC \
         for each second of sound; stages one after another: {:.2}{size}",
        all.bytes / 1e9 / each_second,
        all.multiplies / 1e9 / each_second,
        in_turn.whole.as_secs_f64() / each_second,
    );
    let rtf = side_by_side.whole.as_secs_f64() / sound;
    add(ReportRow::lower_is_better(
        format!("rtf_{published}_{weights}{suffix}"),
        rtf,
        all.floor / each_second,
        "",
        note,
    ));
    for (cores, bandwidth) in PROJECTED {
        let projected: f64 = answer.iter().map(|row| project(machine, row, cores, bandwidth)).sum();
        let note = format!(
            "PROJECTION, not measured: stages one after another; each bound by the same floor as here and as far from it; {cores} \
             such cores and {:.0} GB/s read; nothing is gained from a larger cache{size}",
            bandwidth / 1e9
        );
        let name = format!("rtf_{published}_{weights}_{cores}_cores_projected{suffix}");
        add(ReportRow::without_peer(name, projected / each_second, "", note));
    }
    add(ReportRow::without_peer(
        format!("resident_{weights}{suffix}"),
        measured.resident as f64 / f64::from(1 << 30),
        "GiB",
        format!("memory of the process after the turns{size}"),
    ));
    let note = format!("until the model is loaded{size}");
    add(ReportRow::without_peer(format!("loading_{weights}{suffix}"), measured.loading.as_secs_f64(), "s", note));
    rows
}

/// Projects the seconds of a stage to another number of cores and another memory bandwidth.
fn project(machine: &MachineLimits, row: &StageMeasurement, cores: usize, bandwidth: f64) -> f64 {
    let (reading, multiplying) = machine.lower_bound(row.products);
    let (faster_memory, more_cores) = (bandwidth / machine.bandwidth, cores as f64 / machine.threads as f64);
    let before = reading.max(multiplying);
    if before == 0.0 {
        // A stage without matrix products takes the same time.
        return row.took.as_secs_f64();
    }
    row.took.as_secs_f64() * (reading / faster_memory).max(multiplying / more_cores) / before
}
