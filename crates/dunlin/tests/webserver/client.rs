//! A client that sends the bytes of the tests, and reads responses.

use dunlin::io::{Bytes, Connection, tcp};

/// A connection with the server.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    buffer: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// It has ended as its head announced.
    pub(crate) is_whole: bool,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        Self { connection: tcp::connect(address).await.unwrap(), buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl Into<Vec<u8>>) {
        self.connection.write_all(&mut Bytes::from(bytes.into())).await.unwrap();
    }

    /// Sends a request with these lines behind the first one.
    pub(crate) async fn request(&mut self, first: &str, headers: &str) -> Response {
        self.send(format!("{first} HTTP/1.1\r\nHost: h\r\n{headers}\r\n")).await;
        self.response(first.starts_with("HEAD ")).await.unwrap()
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response {
        self.request(&format!("GET {path}"), "").await
    }

    /// Whether the server has ended the connection, without more.
    pub(crate) async fn is_at_end(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }

    /// Reads more bytes; `false` at the end.
    async fn more(&mut self) -> bool {
        match self.connection.read(64 << 10).await {
            Ok(piece) => {
                self.buffer.extend_from_slice(&piece);
                !piece.is_empty()
            }
            Err(_) => false,
        }
    }

    /// Reads the next response; `None` if the connection ends before it.
    pub(crate) async fn response(&mut self, has_no_body: bool) -> Option<Response> {
        let end = loop {
            match self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.more().await => {}
                None => return None,
            }
        };
        let rest = self.buffer.split_off(end);
        let head = String::from_utf8(std::mem::replace(&mut self.buffer, rest)).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut response = Response { status, head, body: Vec::new(), is_whole: true };
        if has_no_body || matches!(status, 100 | 204 | 304) {
            return Some(response);
        }
        if response.header("Transfer-Encoding") == Some("chunked") {
            response.is_whole = self.chunks(&mut response.body).await;
        } else if let Some(length) = response.header("Content-Length") {
            let length: usize = length.parse().unwrap();
            while self.buffer.len() < length && self.more().await {}
            response.is_whole = self.buffer.len() >= length;
            let rest = self.buffer.split_off(length.min(self.buffer.len()));
            response.body = std::mem::replace(&mut self.buffer, rest);
        } else {
            while self.more().await {}
            response.body = std::mem::take(&mut self.buffer);
        }
        Some(response)
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let Some(line) = self.buffer.windows(2).position(|two| two == b"\r\n") else {
                if !self.more().await {
                    return false;
                }
                continue;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line]).unwrap(), 16).unwrap();
            while self.buffer.len() < line + 2 + size + 2 {
                if !self.more().await {
                    return false;
                }
            }
            body.extend_from_slice(&self.buffer[line + 2..line + 2 + size]);
            self.buffer.drain(..line + 2 + size + 2);
            if size == 0 {
                return true;
            }
        }
    }
}

impl Client {
    /// Puts bytes that a test has read itself before the rest.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.buffer.splice(0..0, bytes.iter().copied());
    }
}
