//! Bodies in chunks: a state machine without I/O.

use super::status::Status;

/// Decodes a chunked body from bytes that arrive in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// The incomplete line so far.
    line: Vec<u8>,
    trailers: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    /// The end of the line after the data.
    AfterData,
    Trailers,
    Over,
}

/// The maximum bytes of a line with a size, or of all trailers.
const LINE_MAX: usize = 4096;

impl Chunked {
    /// Takes bytes from `input`, and passes those of the body to `output`. `true`: the body is complete.
    pub(crate) fn decode(&mut self, input: &mut &[u8], mut output: impl FnMut(&[u8])) -> Result<bool, Status> {
        while self.state != State::Over {
            if let State::Data(left) = &mut self.state {
                if input.is_empty() {
                    return Ok(false);
                }
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                output(input.split_off(..length).unwrap_or_default());
                *left -= length as u64;
                if *left == 0 {
                    self.state = State::AfterData;
                }
                continue;
            }
            let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(input);
                *input = &[];
                return if self.line.len() > LINE_MAX { Err(Status::BadRequest) } else { Ok(false) };
            };
            self.line.extend_from_slice(&input[..end]);
            *input = &input[end + 1..];
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").ok_or(Status::BadRequest)?;
            // Another server could take a carriage return alone for the end of the line.
            if line.len() > LINE_MAX || line.contains(&b'\r') {
                return Err(Status::BadRequest);
            }
            self.end_line(line)?;
        }
        Ok(true)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), Status> {
        self.state = match self.state {
            State::Size => match size(line).ok_or(Status::BadRequest)? {
                0 => State::Trailers,
                size => State::Data(size),
            },
            State::AfterData if line.is_empty() => State::Size,
            State::Trailers if line.is_empty() => State::Over,
            State::Trailers => {
                self.trailers += line.len();
                if self.trailers > LINE_MAX {
                    return Err(Status::HeadTooLarge);
                }
                State::Trailers
            }
            _ => return Err(Status::BadRequest),
        };
        Ok(())
    }
}

/// The size of a chunk, without its extensions.
fn size(line: &[u8]) -> Option<u64> {
    let mut digits = line.split(|byte| *byte == b';').next()?;
    while let [rest @ .., b' ' | b'\t'] = digits {
        digits = rest;
    }
    // `from_str_radix` alone would accept a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}
