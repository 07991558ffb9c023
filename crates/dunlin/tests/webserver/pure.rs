//! The parts without I/O, against models and arbitrary bytes.

use proptest::prelude::*;

use super::web::chunked::Chunked;
use super::web::range::{Wanted, wanted};
use super::web::request::{Framing, head_length, parse};

/// `DUNLIN_CASES` sets how many.
fn cases() -> ProptestConfig {
    let cases = std::env::var("DUNLIN_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// Pieces of requests, and some that are not.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "GET ",
        "POST ",
        "HEAD ",
        "/",
        "/..",
        "%2e",
        "%00",
        "?",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\n",
        "\r",
        "\r\n\r\n",
        "Host: h",
        "Content-Length: ",
        "Transfer-Encoding: chunked",
        "Range: bytes=",
        "Expect: 100-continue",
        "http://",
        "5",
        "-",
        ":",
        " ",
        "\t",
        "99999999999999999999",
        "Connection: close",
    ];
    prop_oneof![
        8 => proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ]
}

proptest! {
    #![proptest_config(cases())]

    /// Every accepted request is safe to serve, whatever the bytes.
    #[test]
    fn any_bytes_are_a_safe_request_or_refused(fragments in proptest::collection::vec(fragment(), 0..30)) {
        let bytes = fragments.concat();
        let mut searched = 0;
        if let Ok(Some(length)) = head_length(&bytes, &mut searched) {
            prop_assert!(bytes[..length].ends_with(b"\r\n\r\n"));
            if let Ok(request) = parse(&bytes[..length]) {
                prop_assert!(request.path.starts_with('/') && !request.path.contains('\0'));
                prop_assert!(request.path.split('/').all(|component| component != ".." && component != "."));
                let has = |name: &str| request.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).count();
                prop_assert!(has("Host") <= 1 && (has("Host") == 1 || !request.is_1_1));
                prop_assert!(has("Content-Length") + has("Transfer-Encoding") <= 1);
                prop_assert_eq!(request.body == Framing::Chunked, has("Transfer-Encoding") == 1);
            }
        }
    }

    /// The result does not depend on how the bytes are split.
    #[test]
    fn end_of_a_head_is_found_for_any_split_of_the_input(
        fragments in proptest::collection::vec(fragment(), 0..20),
        step in 1_usize..7,
    ) {
        let bytes = fragments.concat();
        let at_once = head_length(&bytes, &mut 0);
        let mut searched = 0;
        let mut found = Ok(None);
        for end in (0..=bytes.len()).step_by(step).chain([bytes.len()]) {
            found = head_length(&bytes[..end], &mut searched);
            if !matches!(found, Ok(None)) {
                break;
            }
        }
        prop_assert_eq!(found, at_once);
    }

    #[test]
    fn chunks_are_decoded_for_any_split_of_the_input(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..10),
        step in 1_usize..20,
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nT: x\r\n\r\n");
        let (mut chunked, mut body, mut over) = (Chunked::default(), Vec::new(), false);
        for mut piece in bytes.chunks(step) {
            prop_assert!(!over);
            over = chunked.decode(&mut piece, |data| body.extend_from_slice(data)).unwrap();
            prop_assert!(piece.is_empty());
        }
        prop_assert!(over);
        prop_assert_eq!(body, chunks.concat());
    }

    #[test]
    fn any_bytes_are_chunks_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut chunked, mut length) = (Chunked::default(), 0);
        let _ = chunked.decode(&mut &bytes[..], |data| length += data.len());
        prop_assert!(length <= bytes.len());
    }

    /// Each byte in one of the ranges is sent once, and no other.
    #[test]
    fn ranges_cover_each_requested_byte_once(
        ranges in proptest::collection::vec((0_u64..60, proptest::option::of(0_u64..60)), 1..8),
        length in 0_u64..50,
    ) {
        let list: Vec<String> = ranges
            .iter()
            .map(|(first, more)| format!("{first}-{}", more.map_or(String::new(), |more| (first + more).to_string())))
            .collect();
        let named = |byte: u64| ranges.iter().any(|(first, more)| {
            *first <= byte && more.is_none_or(|more| byte <= first + more)
        });
        match wanted(Some(&format!("bytes={}", list.join(", "))), length) {
            Wanted::Whole => prop_assert!(false, "{list:?}"),
            Wanted::Nothing => prop_assert!(!(0..length).any(named)),
            Wanted::Pieces(pieces) => {
                for byte in 0..length {
                    let count = pieces.iter().filter(|piece| piece.contains(&byte)).count();
                    prop_assert_eq!(count, usize::from(named(byte)));
                }
                prop_assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.end <= length));
            }
        }
    }
}

#[test]
fn ranges_that_are_malformed_or_too_many_are_ignored() {
    let many = format!("bytes={}", "0-0,".repeat(20));
    for header in ["", "bytes", "bytes=x", "bytes=5-3", "bytes=--1", "bytes=+1-2", "lines=1-2", "bytes=1-2-3", &many] {
        assert_eq!(wanted(Some(header), 100), Wanted::Whole, "{header}");
    }
    assert_eq!(wanted(None, 100), Wanted::Whole);
    for (header, piece) in [("bytes=-10", 90..100), ("bytes=-1000", 0..100)] {
        assert_eq!(wanted(Some(header), 100), Wanted::Pieces(Vec::from([piece])));
    }
    let as_many = format!("bytes={}0-0", "0-0,".repeat(15));
    for (header, piece) in [(&*as_many, 0..1), ("bytes=5-9,0-4", 0..10)] {
        assert_eq!(wanted(Some(header), 100), Wanted::Pieces(Vec::from([piece])), "{header}");
    }
    assert_eq!(wanted(Some("bytes=-0"), 100), Wanted::Nothing);
    assert_eq!(wanted(Some("bytes=0-0"), 0), Wanted::Nothing);
}

#[test]
fn lines_and_trailers_of_chunks_are_bounded() {
    let decode = |pieces: &[&[u8]]| {
        let mut chunked = Chunked::default();
        pieces.iter().try_fold(false, |_, piece| chunked.decode(&mut &piece[..], |_| {}))
    };
    let long = [b'0'; 4097];
    assert!(decode(&[&long[..4096]]).is_ok());
    assert!(decode(&[&long]).is_err());
    let line = [b"0;", &long[..4094], b"\r\n\r\n"].concat();
    assert_eq!(decode(&[&line]), Ok(true));
    assert!(decode(&[&[b"0;", &long[..4095], b"\r\n\r\n"].concat()]).is_err(), "also if it comes at once");
    let trailer = [&[b'x'; 1000][..], b"\r\n"].concat();
    assert_eq!(decode(&[b"0\r\n", &trailer.repeat(4), b"\r\n"]), Ok(true));
    assert!(decode(&[b"0\r\n", &trailer.repeat(5)]).is_err());
}

/// Where two servers find different ends of a body, one of them takes a part of it for a request.
#[test]
fn chunks_that_another_server_could_end_elsewhere_are_refused() {
    for bad in [
        "5\r\nkrillX\r\n0\r\n\r\n",
        "5\r\nkrill0\r\n\r\n",
        "5\r\nkrill\n0\r\n\r\n",
        "5\nkrill\r\n0\r\n\r\n",
        "5\r;x\r\nkrill\r\n0\r\n\r\n",
        "5;x\ry\r\nkrill\r\n0\r\n\r\n",
        "5\x0c\r\nkrill\r\n0\r\n\r\n",
        "0\r\nX: y\rZ: z\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
        "+5\r\nkrill\r\n0\r\n\r\n",
        "-0\r\n\r\n",
        " 5\r\nkrill\r\n0\r\n\r\n",
        "0x5\r\nkrill\r\n0\r\n\r\n",
        "5 5\r\nkrill\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
        ";x\r\n\r\n",
        "10000000000000000\r\n\r\n",
    ] {
        assert!(Chunked::default().decode(&mut bad.as_bytes(), |_| {}).is_err(), "{bad:?}");
    }
    let mut body = Vec::new();
    let good = "5 ;x=y\r\nkrill\r\n00\r\n\r\n";
    assert_eq!(Chunked::default().decode(&mut good.as_bytes(), |data| body.extend_from_slice(data)), Ok(true));
    assert_eq!(body, b"krill");
}
