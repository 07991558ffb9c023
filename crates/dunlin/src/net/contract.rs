//! Tests that every kind of network must pass. Each of this crate's networks runs them, and `dunlin::laws!`
//! runs them for a network of yours.
//!
//! `address` is an address at which a listener can be made, without the prefix.
//!
//! # Panics
//! Each function panics if its property does not hold.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Network, compiled_here};

/// More than any network buffers, so that writing waits for reading.
const MANY: usize = 16 << 20;

/// Three sockets of one listener, open together, each carry their own bytes both ways, and their end. Returns
/// the listener's address.
pub async fn echoes(network: &dyn Network, address: &str) -> String {
    let mut listener = network.listen(address).await.unwrap();
    let address = listener.address();
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let here = network.dial(&address).await.unwrap();
        let there = listener.accept().await.unwrap();
        assert!(!here.peer().is_empty() && !there.peer().is_empty());
        pairs.push((here, there));
    }
    for (n, (mut here, there)) in (0..).zip(pairs) {
        let echo = tokio::spawn(compiled_here(async move {
            let (mut reading, mut writing) = tokio::io::split(there);
            let copied = tokio::io::copy(&mut reading, &mut writing).await.unwrap();
            writing.shutdown().await.unwrap();
            assert_eq!(copied, 8 + MANY as u64);
        }));
        here.write_all(&[n; 8]).await.unwrap();
        let mut heard = [9; 8];
        here.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, [n; 8]);

        let (mut reading, mut writing) = tokio::io::split(here);
        let many = tokio::spawn(compiled_here(async move {
            writing.write_all(&vec![n; MANY]).await.unwrap();
            writing.shutdown().await.unwrap();
        }));
        let mut all = Vec::new();
        reading.read_to_end(&mut all).await.unwrap();
        assert!(all.len() == MANY && all.iter().all(|&byte| byte == n));
        many.await.unwrap();
        echo.await.unwrap();
    }
    address
}

/// A second listener at the address is refused, and the first continues. Returns the error's text.
pub async fn is_in_use(network: &dyn Network, address: &str) -> String {
    let mut listener = network.listen(address).await.unwrap();
    let error = network.listen(&listener.address()).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    // The second listener may have dialled to find out whether the first answers: that socket ends at once.
    let mut here = network.dial(&listener.address()).await.unwrap();
    here.write_all(b"x").await.unwrap();
    loop {
        let mut heard = Vec::new();
        let mut there = listener.accept().await.unwrap();
        if there.read_buf(&mut heard).await.unwrap() == 1 {
            break;
        }
    }
    error.to_string()
}

/// Dialling a dropped listener fails, and the sockets that it had not accepted end.
pub async fn refuses_when_dropped(network: &dyn Network, address: &str) {
    let listener = network.listen(address).await.unwrap();
    let address = listener.address();
    let mut waiting = network.dial(&address).await.unwrap();
    drop(listener);
    let error = network.dial(&address).await.err().unwrap();
    assert!(matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    assert!(matches!(waiting.read(&mut [0]).await, Ok(0) | Err(_)));
}
