//! The farms, as people run them: the binary, in OS processes that join and leave.
//!
//! A test starts them, reads their output (`--json`), and ends them. It waits for that output and for nothing
//! else.
#![cfg(unix)]

use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, FileType};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use dunlin_demo::farm::fourier::{PERIOD, coefficient};
use dunlin_demo::farm::mandelbrot::{Picture, Plan};
use dunlin_demo::farm::protocol::Job;
use serde_json::Value;

/// The limit for every wait; only a bug can reach it.
const LIMIT: Duration = Duration::from_secs(120);

/// A process of the command. Its drop kills it.
struct Run {
    child: Child,
    says: mpsc::Receiver<Value>,
    heard: VecDeque<Value>,
    errors: Option<std::thread::JoinHandle<String>>,
}

impl Run {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.args(["--json", "farm"]).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, says) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = tell.send(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}")));
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self { child, says, heard: VecDeque::new(), errors: Some(errors) }
    }

    /// The next object with this event; earlier objects are skipped.
    fn hear(&mut self, event: &str) -> Value {
        loop {
            let object = self.says.recv_timeout(LIMIT).unwrap_or_else(|why| {
                panic!("{why} while waiting for {event:?}; its last object: {:?}", self.heard.back())
            });
            self.heard.push_back(object.clone());
            if object["event"] == event {
                return object;
            }
        }
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for its end; returns its unread output, and the errors.
    fn end(mut self) -> Ended {
        let mut said: Vec<Value> = self.heard.drain(..).collect();
        loop {
            match self.says.recv_timeout(LIMIT) {
                Ok(object) => said.push(object),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs; its last object: {:?}", said.last()),
            }
        }
        let errors = self.errors.take().unwrap().join().unwrap();
        Ended { status: self.child.wait().unwrap(), said, errors }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a process.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    said: Vec<Value>,
    errors: String,
}

impl Ended {
    fn all(&self, event: &str) -> Vec<&Value> {
        self.said.iter().filter(|object| object["event"] == event).collect()
    }

    #[track_caller]
    fn well(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }
}

const SMALL: Plan = Plan { width: 100, height: 70, iterations_max: 200, side: 16 };

/// More work than the other workers need to join and leave: some seconds.
const LARGE: Plan = Plan { width: 240, height: 180, iterations_max: 12_000, side: 8 };

/// The expected content of the file, drawn by this test alone.
fn expected(plan: Plan) -> Vec<u8> {
    let mut picture = Picture::new(plan);
    for rectangle in plan.rectangles() {
        assert!(picture.put(&rectangle, &rectangle.work(&|| false).unwrap()));
    }
    let mut file = Vec::new();
    picture.write(&mut file).unwrap();
    file
}

/// The address of a test's farm, and its picture.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn at(&self) -> String {
        format!("unix:{}", self.folder.path().join("farm").display())
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("picture.png")
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Starts a farm that draws.
    fn draws(&self, plan: Plan, how: &[&str]) -> Run {
        let numbers = [plan.width, plan.height, plan.iterations_max.into(), plan.side].map(|number| number.to_string());
        let [width, height, iterations, side] = &numbers;
        let (at, out) = (self.at(), self.out());
        let mut args = vec!["mandelbrot", "--width", width, "--height", height, "--iterations", iterations];
        args.extend(["--rectangle", side, "--out", out.to_str().unwrap()]);
        if !how.contains(&"--inside") {
            args.extend(["--listen", &at, "--grace", "0.5"]);
        }
        args.extend(how);
        Run::start(&args)
    }

    fn worker(&self) -> Run {
        Run::start(&["worker", "--at", &self.at(), "--grace", "0.5"])
    }
}

#[track_caller]
fn assert_same(file: &Path, expected: &[u8]) {
    assert!(std::fs::read(file).unwrap() == expected, "the picture is another one");
}

#[test]
fn the_picture_is_the_same_with_any_workers() {
    let expected = expected(SMALL);
    for sharing in ["--shared", "--multiplexed"] {
        for how in [&["--inside", "--workers", "3"][..], &["--workers", "2"], &["--workers", "2", "--buffer", "0"]] {
            let place = Place::new();
            let ended = place.draws(SMALL, &[how, &[sharing]].concat()).end().well();
            assert_same(&place.out(), &expected);
            // Each rectangle once.
            let done: Vec<u64> = ended.all("progress").iter().map(|object| object["done"].as_u64().unwrap()).collect();
            assert_eq!(done, (1..=SMALL.count()).collect::<Vec<_>>(), "{sharing} {how:?}");
            assert_eq!(ended.errors, "");
        }
    }
}

/// All but one of the workers may join after the last job: that is no error.
#[test]
fn late_workers_are_dismissed() {
    // In half of such runs a worker joins while the farm closes.
    for sharing in ["--shared", "--multiplexed"].repeat(4) {
        let place = Place::new();
        let one = Plan { width: 1, height: 1, iterations_max: 1, side: 1 };
        let ended = place.draws(one, &["--workers", "6", sharing]).end().well();
        assert_eq!(ended.errors, "");
    }
}

/// An independent decoder reads the file as a picture of the Mandelbrot set, with the known properties of the
/// set.
#[test]
fn the_picture_shows_the_set() {
    let place = Place::new();
    place.draws(SMALL, &["--inside", "--workers", "2"]).end().well();
    let mut png = png::Decoder::new(BufReader::new(File::open(place.out()).unwrap())).read_info().unwrap();
    let mut bytes = vec![0; png.output_buffer_size().unwrap()];
    let info = png.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.height), (SMALL.width, SMALL.height));
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));

    let pixels: Vec<[u8; 3]> = bytes.chunks(3).map(|pixel| pixel.try_into().unwrap()).collect();
    // It is three wide from -2.25 on, and the real axis is in the middle.
    let scale = f64::from(SMALL.width) / 3.0;
    let is_black = |re: f64, im: f64| {
        let (x, y) = ((re + 2.25) * scale, f64::from(SMALL.height) / 2.0 - im * scale);
        pixels[y.round() as usize * SMALL.width as usize + x.round() as usize] == [0; 3]
    };
    // The middle of the cardioid, of its largest disc, of the next on the real axis, and of the one above;
    // and beside them.
    let inside = [(0.0, 0.0), (-1.0, 0.0), (-1.31, 0.0), (-0.1226, 0.7449)];
    let outside =
        [(-2.25, 1.05), (0.72, 1.05), (-2.25, -1.02), (0.72, -1.02), (0.4, 0.0), (-0.75, 0.5), (-0.1226, -1.0)];
    for (re, im) in inside {
        assert!(is_black(re, im), "{re}, {im}");
    }
    for (re, im) in outside {
        assert!(!is_black(re, im), "{re}, {im}");
    }
    // The set's area is 1.507. Points near its edge need more iterations than these.
    let area = pixels.iter().filter(|pixel| **pixel == [0; 3]).count() as f64 / (scale * scale);
    assert!((1.45..1.65).contains(&area), "{area}");
    let colours = pixels.iter().collect::<BTreeSet<_>>().len();
    assert!(colours > 30, "{colours}");
}

/// One worker works; a second joins; the first leaves; a third joins and is killed while it works; the second
/// does the rest.
fn workers_come_and_go(sharing: &str) {
    let place = Place::new();
    let mut farm = place.draws(LARGE, &["--workers", "0", sharing]);
    farm.hear("open");
    let mut first = place.worker();
    assert_eq!(farm.hear("joined")["worker"], 1);
    farm.hear("progress");

    let mut second = place.worker();
    assert_eq!(farm.hear("joined")["worker"], 2);
    second.hear("reported");

    first.hear("begun");
    first.signal("INT");
    let left = farm.hear("left");
    assert_eq!(left["worker"], 1);
    // The job that it had begun, and those in its buffer of two: at most three.
    assert!(left["back"].as_u64().unwrap() <= 3, "{left}");
    let first = first.end();
    assert_eq!(first.status.code(), Some(130), "{first:?}");
    assert_eq!(first.all("left").len(), 1);

    let mut third = place.worker();
    assert_eq!(farm.hear("joined")["worker"], 3);
    third.hear("begun");
    third.signal("KILL");
    let lost = farm.hear("lost");
    assert_eq!(lost["worker"], 3);
    assert!(lost["back"].as_u64().unwrap() > 0, "{lost}");

    let farm = farm.end().well();
    let done: Vec<u64> = farm.all("progress").iter().map(|object| object["done"].as_u64().unwrap()).collect();
    assert_eq!(done, (1..=LARGE.count()).collect::<Vec<_>>());
    assert_same(&place.out(), &expected(LARGE));
    let second = second.end().well();
    assert_eq!(second.all("dismissed").len(), 1, "{second:?}");
    assert_eq!(place.files(), ["picture.png"]);
}

#[test]
fn workers_come_and_go_in_a_shared_farm() {
    workers_come_and_go("--shared");
}

#[test]
fn workers_come_and_go_in_a_multiplexed_farm() {
    workers_come_and_go("--multiplexed");
}

#[test]
fn interrupted_farm_dismisses_its_workers_and_leaves_no_file() {
    for sharing in ["--shared", "--multiplexed"] {
        let place = Place::new();
        let mut farm = place.draws(LARGE, &["--workers", "1", sharing]);
        farm.hear("joined");
        let mut worker = place.worker();
        worker.hear("begun");
        farm.signal("INT");
        let farm = farm.end();
        assert_eq!(farm.status.code(), Some(130), "{farm:?}");
        let worker = worker.end().well();
        assert_eq!(worker.all("dismissed").len(), 1, "{worker:?}");
        assert_eq!(place.files(), [""; 0]);
    }
    let place = Place::new();
    let mut farm = place.draws(LARGE, &["--inside", "--workers", "2"]);
    farm.hear("progress");
    farm.signal("INT");
    assert_eq!(farm.end().status.code(), Some(130));
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_worker_reports_that_its_farm_was_killed() {
    for sharing in ["--shared", "--multiplexed"] {
        let place = Place::new();
        let mut farm = place.draws(LARGE, &["--workers", "0", sharing]);
        farm.hear("open");
        let mut worker = place.worker();
        worker.hear("begun");
        farm.signal("KILL");
        let worker = worker.end();
        assert_eq!(worker.status.code(), Some(1), "{worker:?}");
        assert!(worker.errors.contains("is lost"), "{worker:?}");
    }
}

#[test]
fn impossible_options_fail_before_the_work_begins() {
    let place = Place::new();
    let nowhere = place.folder.path().join("nowhere").join("picture.png");
    let ended = Run::start(&["mandelbrot", "--inside", "--out", nowhere.to_str().unwrap()]).end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.errors.contains("nowhere/picture.png cannot be written"), "{}", ended.errors);
    assert!(ended.said.is_empty(), "{ended:?}");

    let ended = Run::start(&["worker", "--at", &place.at()]).end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.errors.contains("no farm at"), "{}", ended.errors);

    let wrong: [&[&str]; 6] = [
        &["mandelbrot", "--width", "0"],
        &["mandelbrot", "--shared", "--multiplexed"],
        &["mandelbrot", "--inside", "--workers", "0"],
        &["mandelbrot", "--width", "16384", "--height", "16384", "--rectangle", "1"],
        &["fourier", "--coefficients", "10", "--packages", "11"],
        &["worker", "--grace", "never"],
    ];
    for args in wrong {
        let ended = Run::start(args).end();
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {ended:?}");
        assert!(ended.said.is_empty(), "{args:?}: {ended:?}");
    }
}

/// A target that is not a regular file is written directly, and a link stays a link.
#[test]
fn picture_is_written_to_its_target_of_any_kind() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let expected = expected(SMALL);
    let place = Place::new();
    let at = |name: &str| place.folder.path().join(name);
    let is = |name: &str, is: fn(&FileType) -> bool| is(&at(name).symlink_metadata().unwrap().file_type());
    let inside = ["--inside", "--workers", "1"];
    std::fs::write(at("there.png"), "another picture").unwrap();
    symlink("there.png", place.out()).unwrap();
    place.draws(SMALL, &inside).end().well();
    assert!(is("picture.png", FileType::is_symlink));
    assert_same(&at("there.png"), &expected);

    std::fs::remove_file(place.out()).unwrap();
    assert!(Command::new("mkfifo").arg(place.out()).status().unwrap().success());
    let pipe = place.out();
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    place.draws(SMALL, &inside).end().well();
    assert!(reader.join().unwrap() == expected, "the picture is another one");
    assert!(is("picture.png", FileType::is_fifo));

    std::fs::remove_file(place.out()).unwrap();
    if Path::new("/dev/full").exists() {
        symlink("/dev/full", place.out()).unwrap();
        let ended = place.draws(SMALL, &inside).end();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.errors.contains("picture.png cannot be written: No space left on device"), "{}", ended.errors);
        assert!(ended.all("done").is_empty(), "{ended:?}");
        assert!(is("picture.png", FileType::is_symlink));
    }
    assert!(place.files().iter().all(|file| !file.contains("part")), "{:?}", place.files());
}

/// A picture without room on the disk leaves nothing behind, and the previous file stays.
#[test]
fn failed_picture_write_keeps_the_previous_file() {
    let place = Place::new();
    std::fs::write(place.out(), "another picture").unwrap();
    // Like a full disk, after half a kilobyte or one.
    let script = r#"trap "" XFSZ; ulimit -f 1; exec "$0" "$@""#;
    let farm = ["farm", "mandelbrot", "--inside", "--workers", "1", "--width", "100", "--height", "70", "--out"];
    let mut command = Command::new("sh");
    let command = command.args(["-c", script, env!("CARGO_BIN_EXE_dunlin")]).args(farm).arg(place.out());
    let ended = command.output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    assert!(errors.contains("picture.png cannot be written: File too large"), "{errors}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "");
    assert_eq!(place.files(), ["picture.png"]);
    assert_eq!(std::fs::read(place.out()).unwrap(), b"another picture");
}

#[test]
fn the_series_is_the_same_with_any_workers() {
    let expected = |trapeziums| -> f64 { (0..200).map(|k| f64::from(coefficient(k, trapeziums, PERIOD) as f32)).sum() };
    let place = Place::new();
    let at = place.at();
    for how in [&["--inside", "--workers", "2"][..], &["--workers", "2", "--listen", &at]] {
        for sharing in ["--shared", "--multiplexed"] {
            let series = ["fourier", "--coefficients", "200", "--packages", "1,7,200", "--trapeziums", "10,1000"];
            let ended = Run::start(&[&series[..], how, &[sharing]].concat()).end().well();
            let runs = ended.all("run");
            assert_eq!(runs.len(), 6, "{ended:?}");
            for run in runs {
                let sum = expected(run["trapeziums"].as_u64().unwrap());
                assert_eq!(run["sum"].as_f64(), Some(sum), "{run}");
            }
            assert_eq!(ended.all("done")[0]["checked"], true);
        }
    }
}
