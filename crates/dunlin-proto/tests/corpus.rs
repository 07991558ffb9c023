//! The corpus of the fuzz targets (`/fuzz`), run once through the same functions on stable.

use std::fs;
use std::path::Path;

#[path = "fuzz/decoder.rs"]
mod decoder;
#[path = "fuzz/machine.rs"]
mod machine;
#[path = "fuzz/messages.rs"]
mod messages;

fn each(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())) {
        let path = entry.expect("it can be listed").path();
        let bytes = fs::read(&path).expect("it can be read");
        // The name is what a failure has to tell.
        if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
            eprintln!("{} failed", path.display());
            std::panic::resume_unwind(panic);
        }
        count += 1;
    }
    assert!(count >= 50, "only {count} inputs in {}", folder.display());
}

#[test]
fn the_decoder_survives_its_corpus() {
    each("decoder", decoder::run);
}

#[test]
fn the_machine_survives_its_corpus() {
    each("machine", machine::run);
}
