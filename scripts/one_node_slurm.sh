#!/usr/bin/env bash
# A real Slurm of one node on this Debian machine, with accounting, to try and test figures and sweeps on:
#
#   scripts/one_node_slurm.sh start [FOLDER]    prints the line SLURM_CONF=..., to be exported
#   scripts/one_node_slurm.sh stop [FOLDER]     cancels what runs, stops all of it, removes the folder
#
# FOLDER (default /tmp/fedpriv-slurm) must not exist at the start. Needs root and
#   apt-get install -y --no-install-recommends slurm-wlm slurmdbd munge mariadb-server
# Partitions: debug (the default), and low and high: a job of high preempts those of low, which are requeued.
# Account: research.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

programs=(munged slurmctld slurmd slurmdbd sbatch mariadbd mariadb-install-db)
seconds=60 # to wait for a daemon

fail() {
  echo "one_node_slurm.sh: $1" >&2
  exit 1
}

wait_until() { # what it is, then the command that must succeed
  local what=$1
  shift
  for ((i = 0; i < seconds * 5; i++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  fail "$what did not happen within $seconds s; the logs are in $dir/log"
}

check() {
  [ "$(id -u)" = 0 ] || fail "a Slurm of this machine is started by root; run it as root"
  for program in "${programs[@]}"; do
    command -v "$program" >/dev/null ||
      fail "$program is missing; apt-get install -y --no-install-recommends slurm-wlm slurmdbd munge mariadb-server"
  done
}

write_slurm_conf() {
  local node cpus memory
  node=$(uname -n | cut -d. -f1)
  cpus=$(nproc)
  [ "$cpus" -ge 2 ] || cpus=2 # so that two jobs run side by side
  memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
  cat >"$dir/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$node(127.0.0.1)
AuthType=auth/munge
AuthInfo=cred_expire=5
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStorageEnforce=associations
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((memory / cpus))
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=debug Nodes=$node Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=low Nodes=$node MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=high Nodes=$node MaxTime=INFINITE State=UP PriorityTier=20 PreemptMode=OFF
END
}

write_slurmdbd_conf() { # the password of the database
  (
    umask 077
    cat >"$dir/slurmdbd.conf" <<END
AuthType=auth/munge
SlurmUser=root
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=16819
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=16820
StorageUser=slurm
StoragePass=$1
StorageLoc=slurm_acct
END
  )
}

start_munge() {
  munge -n >/dev/null 2>&1 && return # it runs already, and is left alone at the end
  [ -s /etc/munge/munge.key ] || (umask 077 && head -c 1024 /dev/urandom >/etc/munge/munge.key)
  mkdir -p /run/munge
  chown munge: /run/munge /etc/munge/munge.key
  runuser -u munge -- "$(command -v munged)" --pid-file=/run/munge/munged.pid
  ln -s /run/munge/munged.pid "$dir/run/munged.pid"
  wait_until "an answer of munged" munge -n
}

start_database() { # the password it gets
  local sql="CREATE DATABASE slurm_acct; CREATE USER slurm@'%' IDENTIFIED BY '$1';
    GRANT ALL ON slurm_acct.* TO slurm@'%';"
  mariadb-install-db --no-defaults --user=root --datadir="$dir/database" >"$dir/log/install-db.log" 2>&1
  mariadbd --no-defaults --user=root --datadir="$dir/database" --socket="$dir/run/database" --skip-name-resolve \
    --bind-address=127.0.0.1 --port=16820 --pid-file="$dir/run/mariadbd.pid" >"$dir/log/mariadbd.log" 2>&1 &
  wait_until "an answer of mariadbd" mariadb --no-defaults --socket="$dir/run/database" -e "SELECT 1"
  mariadb --no-defaults --socket="$dir/run/database" -e "$sql"
}

start() {
  check
  [ ! -e "$dir" ] || fail "$dir exists; stop what runs there, or name another folder"
  mkdir -p "$dir"/{state,spool,log,run}
  local password
  password=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
  write_slurm_conf
  write_slurmdbd_conf "$password"
  export SLURM_CONF=$dir/slurm.conf
  start_munge
  start_database "$password"
  SLURM_CONF=$dir/slurmdbd.conf slurmdbd
  wait_until "an answer of slurmdbd" sacctmgr -n show cluster
  sacctmgr -i -Q add cluster one >/dev/null
  sacctmgr -i -Q add account research >/dev/null
  sacctmgr -i -Q add user root account=research >/dev/null
  slurmctld
  slurmd
  wait_until "a node that is ready" sh -c 'sinfo -h -o %T | grep -q idle'
  echo "SLURM_CONF=$SLURM_CONF"
}

gone() { ! kill -0 "$1" 2>/dev/null; }

end() { # the name of a pid file
  local pid
  pid=$(cat "$dir/run/$1.pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  wait_until "the end of $1" gone "$pid"
}

stop() {
  [ "$(id -u)" = 0 ] || fail "a Slurm of this machine is stopped by root; run it as root"
  [ -f "$dir/slurm.conf" ] || fail "$dir holds no Slurm that was started by this script"
  export SLURM_CONF=$dir/slurm.conf
  if timeout 10 scancel --partition=debug,low,high 2>/dev/null; then
    wait_until "the end of all jobs" sh -c '! squeue -h | grep -q .'
  fi
  for daemon in slurmd slurmctld slurmdbd mariadbd munged; do
    end "$daemon"
  done
  rm -rf "$dir"
}

dir=$(realpath -m "${2:-/tmp/fedpriv-slurm}")
case ${1:-} in
  start | stop) "$1" ;;
  *) fail "say start or stop, got ${1:-nothing}" ;;
esac
