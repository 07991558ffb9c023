//! Ends spread over nodes by moves: the cost of a move, and that no records are left.

use dunlin_sim::scale::{Figures, Phase, Scale, scale};

const SMALL: Scale = Scale { nodes: 12, ends: 1200, seed: 1 };

fn phase<'a>(figures: &'a Figures, name: &str) -> &'a Phase {
    figures.phases.iter().find(|phase| phase.name == name).unwrap_or_else(|| panic!("there is no phase {name}"))
}

#[test]
fn a_move_costs_a_few_frames_and_leaves_nothing() {
    let figures = scale(SMALL, &mut |_| {}).unwrap_or_else(|what| panic!("{what}"));
    let frames = |name| {
        let phase = phase(&figures, name);
        phase.frames as f64 / phase.count as f64
    };
    // The message, `Take`, `HomeIs`, `Settled`; `Superseded` where the sender's last node is not the home;
    // half of them drain.
    assert_eq!(frames("messages without ends"), 2.0);
    assert_eq!(frames("senders leave their home"), 5.0);
    assert_eq!(frames("senders move, having been used"), 7.0);
    // The message, `Fetch`, `Moving`, `Quiet`, `Take`, `State`, `HomeIs`, `Settled`; and `Where`, if `Take`
    // arrives after `State`.
    let moved = frames("receivers move");
    assert!((9.0..10.0).contains(&moved), "{moved} frames");
    // One value each, sent again or from the buffer.
    let moved = frames("receivers move to the values");
    assert!((10.0..11.5).contains(&moved), "{moved} frames");
    // A message more, and a `Settled`.
    assert!(frames("senders move, passed on once") <= 9.0);
    assert!(frames("receivers move, passed on once") <= frames("receivers move") + 3.5);
    assert!(frames("both move at once") <= 20.0);
    assert_eq!((figures.records.homes, figures.records.proxies), (600 + 12, 600 + 12 * 11));
}

#[test]
fn leftover_halves_are_detected() {
    // A node that passed a sender on is not notified that it is in use.
    dunlin_sim::wake(Some("settled-untold"));
    let what = scale(SMALL, &mut |_| {}).unwrap_err();
    dunlin_sim::wake(None);
    assert!(what.contains("halves, not"), "{what}");
}

#[test]
fn invalid_sizes_are_refused() {
    for wrong in [Scale { nodes: 3, ..SMALL }, Scale { ends: 1, ..SMALL }] {
        assert!(scale(wrong, &mut |_| {}).is_err(), "{wrong:?}");
    }
}
