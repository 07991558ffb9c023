//! The statuses that this server gives.

macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Status {
            $($name,)*
            /// The status of a CGI program.
            Other(u16),
        }

        impl Status {
            pub(crate) fn code(self) -> u16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code,
                }
            }

            pub(crate) fn reason(self) -> &'static str {
                match self.code() {
                    $($code => $reason,)*
                    _ => "Status",
                }
            }
        }
    };
}

statuses! {
    Ok = 200 "OK",
    PartialContent = 206 "Partial Content",
    Moved = 301 "Moved Permanently",
    Found = 302 "Found",
    NotModified = 304 "Not Modified",
    BadRequest = 400 "Bad Request",
    Forbidden = 403 "Forbidden",
    NotFound = 404 "Not Found",
    MethodNotAllowed = 405 "Method Not Allowed",
    RequestTimeout = 408 "Request Timeout",
    PreconditionFailed = 412 "Precondition Failed",
    ContentTooLarge = 413 "Content Too Large",
    RangeNotSatisfiable = 416 "Range Not Satisfiable",
    ExpectationFailed = 417 "Expectation Failed",
    HeadTooLarge = 431 "Request Header Fields Too Large",
    InternalServerError = 500 "Internal Server Error",
    NotImplemented = 501 "Not Implemented",
    BadGateway = 502 "Bad Gateway",
    ServiceUnavailable = 503 "Service Unavailable",
    GatewayTimeout = 504 "Gateway Timeout",
    VersionNotSupported = 505 "HTTP Version Not Supported",
}
