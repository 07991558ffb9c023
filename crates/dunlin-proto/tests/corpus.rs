//! The corpus of the fuzz targets (`/fuzz`), run once through the same functions on stable.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dunlin_proto::wire::codec::{self, Next};
use dunlin_proto::wire::{End, Failure, Frame, FromHome, Poison, ToHome};

#[path = "fuzz/decoder.rs"]
mod decoder;
#[path = "fuzz/machine.rs"]
mod machine;
#[path = "fuzz/messages.rs"]
mod messages;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn each(target: &str, run: fn(&[u8])) {
    let folder = folder(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())) {
        let path = entry.expect("it can be listed").path();
        let bytes = fs::read(&path).expect("it can be read");
        // The name of the file identifies the failure.
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

/// A frame with new bytes cannot be read from an old corpus: the corpus then has to be made again.
#[test]
fn decoder_corpus_has_poison_in_every_frame_that_carries_it() {
    let mut met = BTreeSet::new();
    for entry in fs::read_dir(folder("decoder")).unwrap() {
        let mut rest = Bytes::from(fs::read(entry.unwrap().path()).unwrap());
        // The first byte selects the decoder: these are read as frames.
        if rest.is_empty() || rest.split_to(1)[0] % 3 != 0 {
            continue;
        }
        while let Ok(Next::Frame { head, body }) = codec::next(&rest) {
            let whole = rest.split_to(head + body);
            let strong = |poison: &Poison, place| (poison.strength > 0).then_some(place);
            met.extend(match codec::decode(whole[0], whole.slice(head..)) {
                Ok(Frame::FromHome(_, FromHome::Ended(End::Poisoned(poison)))) => strong(&poison, "ended by the home"),
                Ok(Frame::FromHome(_, FromHome::Failed(_, Failure::Poisoned(poison)))) => strong(&poison, "failed"),
                Ok(Frame::ToHome(_, ToHome::Ended(End::Poisoned(poison)))) => strong(&poison, "ended by the sender"),
                _ => None,
            });
        }
    }
    assert_eq!(met.into_iter().collect::<Vec<_>>(), ["ended by the home", "ended by the sender", "failed"]);
}
