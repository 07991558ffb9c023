//! The servers. Each is started on a core, at its own port, with an access log and connections that may be
//! kept for any number of requests.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dunlin { farm: bool },
    Nginx { workers: u32, cache: bool },
    Prefork { requests: u32 },
    Event,
}

pub(super) const ALL: [Kind; 9] = [
    Kind::Dunlin { farm: false },
    Kind::Dunlin { farm: true },
    Kind::Nginx { workers: 1, cache: true },
    Kind::Nginx { workers: 1, cache: false },
    Kind::Nginx { workers: 2, cache: true },
    Kind::Nginx { workers: 2, cache: false },
    Kind::Prefork { requests: 30 },
    Kind::Prefork { requests: 1_000_000 },
    Kind::Event,
];

impl Kind {
    pub(super) fn name(self) -> String {
        match self {
            Self::Dunlin { farm: false } => "dunlin".to_owned(),
            Self::Dunlin { farm: true } => "dunlin --farm".to_owned(),
            Self::Nginx { workers, cache } => {
                format!("nginx {workers}{}", if cache { " open_file_cache" } else { "" })
            }
            Self::Prefork { requests } => format!("apache prefork {requests}"),
            Self::Event => "apache event".to_owned(),
        }
    }

    /// The program, and the command that installs it.
    fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Dunlin { .. } => None,
            Self::Nginx { .. } => Some(("nginx", "apt-get install -y nginx")),
            Self::Prefork { .. } | Self::Event => Some(("apache2", "apt-get install -y apache2")),
        }
    }
}

/// The path of a program.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Servers are not on every user's path.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A server that runs until it is dropped.
pub(super) struct Running {
    pub(super) kind: Kind,
    pub(super) address: String,
    child: Child,
}

impl Running {
    /// Starts a server in its own folder of `scratch`, which has the files in `root`. Returns `None`, to skip
    /// it, if the program is not installed.
    pub(super) fn start(kind: Kind, core: usize, scratch: &Path) -> Result<Option<Self>> {
        let program = match kind.program() {
            None => env::current_exe().context("cannot find this binary")?,
            Some((program, install)) => match find(program) {
                Some(program) => program,
                None => {
                    eprintln!("{} is skipped, since {program} is not installed: {install}", kind.name());
                    return Ok(None);
                }
            },
        };
        let root = scratch.join("root");
        let folder = scratch.join(kind.name().replace(' ', "-"));
        fs::create_dir_all(&folder)?;
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program).stdin(Stdio::piped());
        if let Kind::Dunlin { farm } = kind {
            command.args(["web-side", "serve"]).arg(&root).arg(folder.join("access.log"));
            command.args(farm.then_some("--farm")).stdout(Stdio::piped());
            let mut child = command.spawn().context("cannot start taskset; is util-linux installed?")?;
            let mut address = String::new();
            let stdout = child.stdout.take().context("it was piped")?;
            BufReader::new(stdout).read_line(&mut address)?;
            return Ok(Some(Self { kind, address: address.trim().to_owned(), child }));
        }
        // The port was free a moment ago. Neither server reports which port it has taken.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let file = folder.join("conf");
        match kind {
            Kind::Nginx { workers, cache } => {
                fs::write(&file, nginx(&folder, &root, &address, workers, cache))?;
                command.arg("-c").arg(file).arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log"));
            }
            _ => {
                let module = match kind {
                    Kind::Prefork { requests } => prefork(requests),
                    _ => event(),
                };
                fs::write(&file, apache(&folder, &root, &address, &module))?;
                command.arg("-DFOREGROUND").arg("-f").arg(file);
            }
        }
        let child = command.stdout(Stdio::null()).spawn().context("cannot start taskset; is util-linux installed?")?;
        let mut running = Self { kind, address, child };
        running.await_listener()?;
        Ok(Some(running))
    }

    fn await_listener(&mut self) -> Result<()> {
        let begin = Instant::now();
        while TcpStream::connect(&self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} before it listened", self.kind.name());
            }
            ensure!(begin.elapsed() < Duration::from_secs(20), "{} does not listen", self.kind.name());
            // The peers do not report that they listen.
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server that left its children running would disturb the next measurement.
        let all = process::pids(self.pid()).unwrap_or_default();
        for pid in all {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

fn nginx(folder: &Path, root: &Path, address: &str, workers: u32, cache: bool) -> String {
    let (folder, root) = (folder.display(), root.display());
    let cache = if cache { "open_file_cache max=1000; open_file_cache_valid 1s;" } else { "" };
    format!(
        "user root; daemon off; worker_processes {workers}; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 20000;
events {{ worker_connections 12000; }}
http {{
    access_log {folder}/access.log;
    default_type application/octet-stream;
    sendfile on; tcp_nopush on; tcp_nodelay on;
    keepalive_timeout 3600; keepalive_requests 1000000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {cache}
    server {{ listen {address} backlog=4096; root {root}; }}
}}
"
    )
}

fn prefork(requests: u32) -> String {
    format!(
        "LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
StartServers 5
MinSpareServers 5
MaxSpareServers 10
ServerLimit 1024
MaxRequestWorkers 1024
MaxConnectionsPerChild {requests}
"
    )
}

fn event() -> String {
    "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
StartServers 2
ThreadsPerChild 64
ThreadLimit 64
ServerLimit 16
MaxRequestWorkers 1024
MaxConnectionsPerChild 0
"
    .to_owned()
}

fn apache(folder: &Path, root: &Path, address: &str, module: &str) -> String {
    let (folder, root) = (folder.display(), root.display());
    format!(
        "{module}LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
TypesConfig /etc/mime.types
ServerRoot /usr/lib/apache2
ServerName localhost
DefaultRuntimeDir {folder}
PidFile {folder}/pid
User www-data
Group www-data
Listen {address}
ListenBacklog 4096
ErrorLog {folder}/error.log
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" common
CustomLog {folder}/access.log common
DocumentRoot {root}
KeepAlive On
KeepAliveTimeout 3600
MaxKeepAliveRequests 0
EnableSendfile On
<Directory {root}>
    Require all granted
</Directory>
"
    )
}
